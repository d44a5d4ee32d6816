// Workers: threads that compute side by side, each with OpenMP threads of its own. Where one large problem falls into independent parts,
// such as the shards of a training step, they need not wait for each other at every product.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "hinge/kernels/parallel.h"

namespace hinge::train {

class Workers {
 public:
  // `count` workers of `threads` threads each; the thread that calls run() is the first worker. Throws std::runtime_error if the system
  // refuses a thread.
  Workers(int count, int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return count_; }
  int threads() const { return threads_; }  // of each

  // Calls body(worker) once for each worker, side by side, and returns when all have returned. What ATen, oneDNN and AtenParallel compute
  // in it runs on the worker's own threads. Of errors, throws that of the lowest worker. Only from the thread that made them; not nested.
  void run(const std::function<void(int worker)>& body);
  // The same, but without those who have not begun when the first worker has returned: they have other processes before them, and nothing
  // is left to do.
  void run_with_who_comes(const std::function<void(int worker)>& body);

 private:
  void begin(const std::function<void(int)>& body);
  void finish();
  void end();
  void work(int worker);
  void call(int worker);

  const int count_, threads_;
  const std::function<void(int)>* body_ = nullptr;  // of the present round; for those who have joined it
  std::vector<std::exception_ptr> errors_;
  std::atomic<uint32_t> round_{0};  // number of the round, whether one may join it, and how many have joined and not left; see workers.cc
  std::atomic<uint32_t> left_{0};   // workers that have left the round
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> others_;  // last: they use all of the above
};

// The kernels' way to run on all threads of all workers.
class WorkersParallel final : public kernels::Parallel {
 public:
  explicit WorkersParallel(Workers& workers) : workers_(workers) {}
  int workers() const override { return workers_.count() * workers_.threads(); }
  void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& body) override;

 private:
  Workers& workers_;
};

}  // namespace hinge::train
