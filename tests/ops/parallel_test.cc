// The kernels' way to run on ATen's threads: every task once, no two at a time on one worker.
#include "ops/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace hinge {
namespace {

// Sets the number of threads, and puts it back.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

TEST(AtenParallel, RunsEveryTaskOnceAndNoTwoOnOneWorkerAtATime) {
  for (int threads : {1, 2, 4}) {
    const Threads set(threads);
    AtenParallel parallel;
    EXPECT_EQ(parallel.workers(), threads);
    for (int64_t tasks : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::vector<std::atomic<int>> busy(static_cast<size_t>(threads));
      std::atomic<int> clashes{0};
      parallel.run(tasks, [&](int64_t task, int worker) {
        if (worker < 0 || worker >= threads || busy[static_cast<size_t>(worker)]++ != 0) ++clashes;
        ++runs[static_cast<size_t>(task)];
        --busy[static_cast<size_t>(worker)];
      });
      EXPECT_EQ(clashes, 0);
      for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(AtenParallel, IsSerialInsideAParallelRegion) {
  const Threads set(2);
  std::atomic<int> workers{0};
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) workers += AtenParallel().workers();
  });
  EXPECT_EQ(workers, 2);
}

TEST(AtenParallel, HandsOnAnException) {
  const Threads set(2);
  AtenParallel parallel;
  EXPECT_THROW(parallel.run(10,
                            [](int64_t task, int) {
                              if (task == 3) throw std::runtime_error("task 3");
                            }),
               std::runtime_error);
}

}  // namespace
}  // namespace hinge
