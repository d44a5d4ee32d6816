// The learning rate over a run, as a factor of its peak.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace hinge::train {

// What follows the warm-up: to 0 by a half cosine or a line, no change, or falling with the inverse square root of the step.
enum class Schedule { cosine, linear, constant, inverse_sqrt };
inline std::vector<std::pair<std::string, Schedule>> config_words(Schedule) {
  return {{"cosine", Schedule::cosine},
          {"linear", Schedule::linear},
          {"constant", Schedule::constant},
          {"inverse_sqrt", Schedule::inverse_sqrt}};
}

// At step `step` (from 0) of `steps`; linear from 0 in the warm-up.
inline double schedule_factor(Schedule schedule, int64_t step, int64_t steps, int64_t warmup) {
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  const double done = static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  switch (schedule) {
    case Schedule::cosine: return 0.5 * (1 + std::cos(std::numbers::pi * done));
    case Schedule::linear: return 1 - done;
    case Schedule::constant: return 1;
    case Schedule::inverse_sqrt:
      return std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) / static_cast<double>(std::max<int64_t>(step, 1)));
  }
  return 1;
}

}  // namespace hinge::train
