// The thread policy, and threads that are started together.
#include "support/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>

namespace hinge::support {
namespace {

class ThreadPolicy : public testing::Test {
 protected:
  ThreadPolicy() {
    if (const char* given = std::getenv("OMP_NUM_THREADS")) before_ = given;
    ::sched_getaffinity(0, sizeof cores_, &cores_);
    ::unsetenv("OMP_NUM_THREADS");
  }
  ~ThreadPolicy() override {
    ::unsetenv("OMP_NUM_THREADS");
    if (!before_.empty()) ::setenv("OMP_NUM_THREADS", before_.c_str(), 1);
    ::sched_setaffinity(0, sizeof cores_, &cores_);
  }
  static int threads_with(const char* value) {
    ::setenv("OMP_NUM_THREADS", value, 1);
    return default_threads();
  }

  cpu_set_t cores_{};
  std::string before_;
};

TEST_F(ThreadPolicy, IsTheVariableElseTheCoresOfTheProcess) {
  EXPECT_EQ(default_threads(), CPU_COUNT(&cores_));
  EXPECT_EQ(threads_with("3"), 3);
  EXPECT_EQ(threads_with("64"), 64);
  EXPECT_EQ(threads_with("4,2"), 4);
  EXPECT_EQ(threads_with(" 5 , 2"), 5);
  for (const char* nonsense : {"", "0", "-2", "many", "3x", "99999999999999"})
    EXPECT_EQ(threads_with(nonsense), CPU_COUNT(&cores_)) << nonsense;
}

TEST_F(ThreadPolicy, CountsTheCoresItMayUse) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &cores_)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  EXPECT_EQ(default_threads(), 1);
}

TEST(StartThreads, RunsAllOfThemWithTheirNumbers) {
  std::atomic<int> sum = 0;
  start_threads(
      5, [&](int i) { sum += 1 << i; }, [] {}, "");
  EXPECT_EQ(sum, 31);
  EXPECT_TRUE(start_threads(
                  0, [](int) {}, [] {}, "")
                  .empty());
}

}  // namespace
}  // namespace hinge::support
