// Runs the kernels on OpenMP's threads, which LibTorch and oneDNN use as well.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "hinge/kernels/parallel.h"

namespace hinge {

class OpenMpParallel final : public kernels::Parallel {
 public:
  explicit OpenMpParallel(int threads = omp_get_max_threads()) : threads_(std::max(1, threads)) {}

  int workers() const override { return threads_; }

  void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& body) override {
#pragma omp parallel for schedule(dynamic) num_threads(threads_) if (threads_ > 1 && tasks > 1)
    for (int64_t task = 0; task < tasks; ++task) body(task, omp_get_thread_num());
  }

 private:
  int threads_;
};

}  // namespace hinge
