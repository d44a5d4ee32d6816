// The learning rate over a run.
#include "train/schedule.h"

#include <gtest/gtest.h>

namespace hinge::train {
namespace {

TEST(Schedule, RisesAndFalls) {
  EXPECT_EQ(schedule_factor(Schedule::cosine, 0, 100, 10), 0);
  EXPECT_EQ(schedule_factor(Schedule::cosine, 5, 100, 10), 0.5);
  EXPECT_EQ(schedule_factor(Schedule::cosine, 10, 100, 10), 1);
  EXPECT_NEAR(schedule_factor(Schedule::cosine, 55, 100, 10), 0.5, 1e-15);
  EXPECT_NEAR(schedule_factor(Schedule::cosine, 40, 100, 10), 0.75, 1e-15);  // a third of the way down: (1 + cos 60 degrees) / 2
  EXPECT_NEAR(schedule_factor(Schedule::cosine, 100, 100, 10), 0, 1e-15);
  EXPECT_EQ(schedule_factor(Schedule::linear, 55, 100, 10), 0.5);
  EXPECT_EQ(schedule_factor(Schedule::linear, 0, 100, 0), 1);
  EXPECT_EQ(schedule_factor(Schedule::constant, 99, 100, 10), 1);
  EXPECT_EQ(schedule_factor(Schedule::constant, 1, 100, 10), 0.1);
  EXPECT_EQ(schedule_factor(Schedule::cosine, 3, 4, 4), 0.75);  // nothing but warm-up
  EXPECT_EQ(schedule_factor(Schedule::inverse_sqrt, 1, 100, 4), 0.25);
  EXPECT_EQ(schedule_factor(Schedule::inverse_sqrt, 4, 100, 4), 1);
  EXPECT_EQ(schedule_factor(Schedule::inverse_sqrt, 64, 100, 4), 0.25);
  EXPECT_EQ(schedule_factor(Schedule::inverse_sqrt, 0, 100, 0), 1);
  EXPECT_EQ(schedule_factor(Schedule::inverse_sqrt, 16, 100, 0), 0.25);
}

}  // namespace
}  // namespace hinge::train
