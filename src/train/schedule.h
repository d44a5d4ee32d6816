// The learning rate over a run, as a factor of its peak.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

namespace hinge::train {

// Step `step` (from 0) of `steps`: linear from 0 in the warm-up, then cosine or linear to 0, constant, or falling with the
// inverse square root of the step.
inline double schedule_factor(const std::string& kind, int64_t step, int64_t steps, int64_t warmup) {
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == "constant") return 1;
  if (kind == "inverse_sqrt")
    return std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) / static_cast<double>(std::max<int64_t>(step, 1)));
  const double done = static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  if (kind == "linear") return 1 - done;
  return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace hinge::train
