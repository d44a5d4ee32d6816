#include "ops/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace hinge {

AtenParallel::AtenParallel() : workers_(at::in_parallel_region() ? 1 : std::max(1, at::get_num_threads())) {}

void AtenParallel::run(int64_t tasks, const std::function<void(int64_t, int)>& body) {
  std::atomic<int64_t> next{0};
  const auto work = [&](int worker) {
    try {
      for (int64_t task = next++; task < tasks; task = next++) body(task, worker);
    } catch (...) {
      next = tasks;  // an error ends the work: the other workers begin no more
      throw;
    }
  };
  const int64_t used = std::min<int64_t>(workers_, tasks);
  if (used <= 1) return work(0);
  at::parallel_for(0, used, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) work(static_cast<int>(worker));
  });
}

void run_side_by_side(int64_t tasks, const std::function<void(int64_t)>& body) {
  if (AtenParallel parallel; tasks >= parallel.workers())
    parallel.run(tasks, [&](int64_t task, int) { body(task); });
  else
    for (int64_t task = 0; task < tasks; ++task) body(task);
}

}  // namespace hinge
