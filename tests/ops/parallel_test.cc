// The kernels' ways to run on ATen's and on OpenMP's threads: every task once, no two at a time on one worker.
#include "ops/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "hinge/openmp_parallel.h"
#include "threads.h"

namespace hinge {
namespace {

TEST(AtenParallel, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 4}) {
    const Threads set(threads);
    AtenParallel parallel;
    EXPECT_EQ(parallel.workers(), threads);
    for (int64_t tasks : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      parallel.run(tasks, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
      for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(AtenParallel, TasksThatRunAtTheSameTimeHaveDifferentWorkers) {
  constexpr int kThreads = 3;
  const Threads set(kThreads);
  AtenParallel parallel;
  std::mutex mutex;
  std::condition_variable all_here;
  std::set<int> workers;
  int here = 0;
  parallel.run(kThreads, [&](int64_t, int worker) {
    std::unique_lock lock(mutex);
    workers.insert(worker);
    ++here;
    all_here.notify_all();
    EXPECT_TRUE(all_here.wait_for(lock, std::chrono::seconds(30), [&] { return here == kThreads; })) << "the tasks run one after another";
  });
  EXPECT_EQ(workers, (std::set<int>{0, 1, 2}));
}

TEST(AtenParallel, IsSerialInsideAParallelRegion) {
  const Threads set(2);
  std::atomic<int> workers{0};
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) workers += AtenParallel().workers();
  });
  EXPECT_EQ(workers, 2);
}

TEST(AtenParallel, HandsOnAnExceptionAndBeginsNoMore) {
  constexpr int kTasks = 1000;
  for (int threads : {1, 2}) {
    const Threads set(threads);
    AtenParallel parallel;
    std::atomic<int> begun{0};
    EXPECT_THROW(parallel.run(kTasks,
                              [&](int64_t task, int) {
                                ++begun;
                                if (task == 0) throw std::runtime_error("task 0");
                                std::this_thread::sleep_for(std::chrono::milliseconds(1));  // all of them: a second
                              }),
                 std::runtime_error);
    EXPECT_LT(begun, kTasks) << "the other worker went on to the end";
  }
}

TEST(OpenMpParallel, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 4}) {
    OpenMpParallel parallel(threads);
    EXPECT_EQ(parallel.workers(), threads);
    std::vector<std::atomic<int>> runs(1000);
    parallel.run(1000, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(OpenMpParallel, HandsOnAnException) {
  for (int threads : {1, 2, 4}) {
    OpenMpParallel parallel(threads);
    EXPECT_THROW(parallel.run(10,
                              [](int64_t task, int) {
                                if (task == 3) throw std::runtime_error("task 3");
                              }),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace hinge
