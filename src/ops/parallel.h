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

// Calls body(task) once for each task. Where there are as many tasks as threads, side by side, each on one thread: they need not wait for
// each other at every product. Else one after another, each on all threads. After an error no more are begun.
void run_side_by_side(int64_t tasks, const std::function<void(int64_t task)>& body);

}  // namespace hinge
