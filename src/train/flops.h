// How the work of training is counted.
#pragma once

namespace hinge::train {

// Of a training step, by those of its forward pass: the backward pass computes two gradients, that of the inputs and that of the weights,
// where the forward pass computes one output.
constexpr double training_flops(double forward) { return 3 * forward; }

}  // namespace hinge::train
