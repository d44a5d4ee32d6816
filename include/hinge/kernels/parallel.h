// How a caller lends its threads to the kernels. The kernels start no threads of their own.
#pragma once

#include <cstdint>
#include <functional>

namespace hinge::kernels {

class Parallel {
 public:
  virtual ~Parallel() = default;

  // Upper bound of the `worker` numbers that run() hands out; at least 1.
  virtual int workers() const = 0;

  // Calls body(task, worker) once for each task in [0, tasks), in any order, and returns when all are done.
  // Two calls that run at the same time have different worker numbers in [0, workers()).
  virtual void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& body) = 0;
};

// Everything on the calling thread.
class Serial final : public Parallel {
 public:
  int workers() const override { return 1; }
  void run(int64_t tasks, const std::function<void(int64_t, int)>& body) override {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
  }
};

}  // namespace hinge::kernels
