#include "eval/for_each_batch.h"

#include <ATen/ATen.h>

#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge::eval {

void for_each_batch(data::Loader& loader, const std::function<bool()>& goes_on, const std::function<void(data::Batch&)>& body,
                    bool in_order) {
  PackedWeights weights;
  const auto next = [&](int64_t) {
    const at::NoGradGuard guard;            // of this thread
    const PackedWeights::Use use(weights);  // of this thread, too
    if (data::Batch batch; goes_on() && loader.next(batch)) body(batch);
  };
  if (!in_order) return run_side_by_side(loader.steps(), next);
  for (int64_t step = 0; step < loader.steps(); ++step) next(step);
}

}  // namespace hinge::eval
