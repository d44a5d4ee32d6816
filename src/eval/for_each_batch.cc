#include "eval/for_each_batch.h"

#include <ATen/ATen.h>

#include <atomic>

#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge::eval {

void for_each_batch(data::Loader& loader, const std::function<bool()>& goes_on, const std::function<void(data::Batch&)>& body) {
  PackedWeights weights;
  std::atomic<bool> failed = false;
  const auto work = [&](int64_t, int) {
    const at::NoGradGuard guard;            // of this thread
    const PackedWeights::Use use(weights);  // of this thread, too
    try {
      for (data::Batch batch; !failed && goes_on() && loader.next(batch);) body(batch);
    } catch (...) {
      failed = true;  // nobody begins another batch
      throw;
    }
  };
  AtenParallel parallel;
  if (loader.steps_per_epoch() >= parallel.workers())
    parallel.run(parallel.workers(), work);
  else
    work(0, 0);
}

}  // namespace hinge::eval
