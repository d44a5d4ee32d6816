// LibTorch's generator of random numbers for the CPU, which all noise of training comes from.
#pragma once

#include <ATen/core/Tensor.h>

namespace hinge::nn {

// What the generator will draw next; set again, it draws the same.
at::Tensor generator_state();
void set_generator_state(const at::Tensor& state);

// A seed drawn from it, for the counter-based generators of the kernels.
int64_t drawn_seed();

}  // namespace hinge::nn
