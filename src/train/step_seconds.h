// How long training steps take on this machine, measured on a part of a batch.
#pragma once

#include <functional>

#include "nn/parameters.h"
#include "train/sharded_gradient.h"

namespace hinge::train {

struct StepSeconds {
  double gradient = 0;  // of one call of `gradients`
  double adam = 0;      // of what every step does once
};

// On one thread, by processor time: medians of a few calls, or one if that takes long.
StepSeconds step_seconds(const nn::Parameters& parameters, const std::function<Gradients()>& gradients);

// How much work a measurement should be: about a tenth of a second.
inline constexpr double kMeasuredFlops = 5e9;

}  // namespace hinge::train
