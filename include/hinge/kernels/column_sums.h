// Sums over rows: the gradients of biases. Plain pointers; the same bits for any number of workers.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// sums[j] = sum_i x[i * stride + j], j < width.
void column_sums(const float* x, int64_t rows, int64_t stride, int64_t width, float* sums, Parallel&);
void column_sums(const double* x, int64_t rows, int64_t stride, int64_t width, double* sums, Parallel&);

}  // namespace hinge::kernels
