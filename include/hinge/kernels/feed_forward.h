// What a feed-forward layer does between its two products: the activation with its gradient, and sums over rows for the gradients of
// biases. Plain pointers; the same bits for any number of workers. The meaning in plain loops: src/kernels/dense_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// a = h(u), n elements; a may be u. Softmax is no point-wise function and not taken.
void activate_forward(Activation h, const float* u, int64_t n, float* a, Parallel&);
void activate_forward(Activation h, const double* u, int64_t n, double* a, Parallel&);

// For arrays [rows, width], in one pass: du = da * h'(u), a = h(u) once more, grad_bias = sums of du over rows. du may be da.
template <typename T> struct ActivateBackward {
  int64_t rows = 0, width = 0;
  const T *u = nullptr, *da = nullptr;
  T *du = nullptr, *a = nullptr, *grad_bias = nullptr;
};
void activate_backward(Activation h, const ActivateBackward<float>&, Parallel&);
void activate_backward(Activation h, const ActivateBackward<double>&, Parallel&);

// sums[j] = sum_i x[i * stride + j], j < width.
void column_sums(const float* x, int64_t rows, int64_t stride, int64_t width, float* sums, Parallel&);
void column_sums(const double* x, int64_t rows, int64_t stride, int64_t width, double* sums, Parallel&);

}  // namespace hinge::kernels
