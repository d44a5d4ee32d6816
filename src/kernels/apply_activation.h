// h and h' over an array by the SIMD code that the attention tiles use, so that its error can be measured.
#pragma once

#include <cstdint>

#include "hinge/kernels/activations.h"

namespace hinge::kernels {

// value[i] = h(x[i]), slope[i] = h'(x[i]). Point-wise activations only.
void apply_activation(Activation h, const float* x, float* value, float* slope, int64_t n);
void apply_activation(Activation h, const double* x, double* value, double* slope, int64_t n);

}  // namespace hinge::kernels
