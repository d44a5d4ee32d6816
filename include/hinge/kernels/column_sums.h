// Sums over rows: the gradients of biases. Plain pointers to float or double; the same bits for any number of workers.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// sums[j] = sum_i x[i * stride + j], j < width.
template <typename T> void column_sums(const T* x, int64_t rows, int64_t stride, int64_t width, T* sums, Parallel&);

}  // namespace hinge::kernels
