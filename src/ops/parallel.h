// The kernels' way to run on ATen's threads.
#pragma once

#include "hinge/kernels/parallel.h"

namespace hinge {

// Runs on at::get_num_threads() threads, on the calling one alone inside another parallel region. A free thread takes the next task.
class AtenParallel final : public kernels::Parallel {
 public:
  AtenParallel();
  int workers() const override { return workers_; }
  void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& body) override;

 private:
  int workers_;
};

}  // namespace hinge
