// Ways to run the kernels in parallel, for tests.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels::testing {

// Fresh threads for every run(); whoever is free takes the next task.
class Threads final : public Parallel {
 public:
  explicit Threads(int workers) : workers_(workers) {}
  int workers() const override { return workers_; }
  void run(int64_t tasks, const std::function<void(int64_t, int)>& body) override {
    std::atomic<int64_t> next{0};
    const auto work = [&](int worker) {
      for (int64_t task = next++; task < tasks; task = next++) body(task, worker);
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < workers_; ++worker) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int workers_;
};

// One thread, but the last task first and workers in turn: any dependence on order or on who does what shows every time.
class Backwards final : public Parallel {
 public:
  explicit Backwards(int workers) : workers_(workers) {}
  int workers() const override { return workers_; }
  void run(int64_t tasks, const std::function<void(int64_t, int)>& body) override {
    for (int64_t task = tasks - 1; task >= 0; --task) body(task, static_cast<int>(task % workers_));
  }

 private:
  int workers_;
};

}  // namespace hinge::kernels::testing
