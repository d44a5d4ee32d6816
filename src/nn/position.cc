#include "nn/position.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace hinge::nn {

using at::Tensor;

Tensor sinusoidal_positions(int64_t length, int64_t width) {
  const Tensor frequency = at::pow(10000.0, -at::arange(0, width, 2, at::kDouble) / static_cast<double>(width));
  const Tensor angle = at::arange(length, at::kDouble).unsqueeze(1) * frequency;  // [length, width / 2]
  return at::stack({angle.sin(), angle.cos()}, 2).view({length, width}).to(at::kFloat);
}

Tensor sinusoidal_positions_2d(int64_t side, int64_t width) {
  const int64_t n = width / 4;
  // Powers of the temperature from 1 down to 1 / 10000.
  const Tensor omega = at::pow(10000.0, -at::arange(n, at::kDouble) / static_cast<double>(std::max<int64_t>(n - 1, 1)));
  const Tensor steps = at::arange(side, at::kDouble);
  const Tensor y = steps.repeat_interleave(side).unsqueeze(1) * omega, x = steps.repeat({side}).unsqueeze(1) * omega;
  return at::cat({x.sin(), x.cos(), y.sin(), y.cos()}, 1).to(at::kFloat).unsqueeze(0);
}

}  // namespace hinge::nn
