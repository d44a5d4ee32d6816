// Runs the kernels on OpenMP's threads, which LibTorch and oneDNN use as well.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>

#include "hinge/kernels/parallel.h"

namespace hinge {

class OpenMpParallel final : public kernels::Parallel {
 public:
  explicit OpenMpParallel(int threads = omp_get_max_threads()) : threads_(std::max(1, threads)) {}

  int workers() const override { return threads_; }

  // An exception must not leave OpenMP's loop: the first is thrown once all threads are done, and no task begins after it.
  void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& body) override {
    std::atomic<bool> failed{false};
    std::exception_ptr first;
#pragma omp parallel for schedule(dynamic) num_threads(threads_) if (threads_ > 1 && tasks > 1)
    for (int64_t task = 0; task < tasks; ++task) {
      if (failed) continue;
      try {
        body(task, omp_get_thread_num());
      } catch (...) {
        if (!failed.exchange(true)) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  int threads_;
};

}  // namespace hinge
