// The threads of a run.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "support/threads.h"
#include "train/trainer.h"

namespace hinge::train {
namespace {

TEST(UseThreads, TakesTheNumberOfTheConfigOrThatOfThePolicy) {
  const int before = at::get_num_threads();
  use_threads(3);
  EXPECT_EQ(at::get_num_threads(), 3);
  use_threads(0);
  EXPECT_EQ(at::get_num_threads(), support::default_threads());
  at::set_num_threads(before);
}

}  // namespace
}  // namespace hinge::train
