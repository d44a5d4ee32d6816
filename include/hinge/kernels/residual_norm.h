// The end of a branch of a transformer block, in one pass over rows: the sum with the residual, with dropout of the branch, and its layer
// norm. And the norm by the root of the mean square. Plain pointers to float or double; the same bits for any number of workers.
// The meaning in plain loops: src/kernels/sequence_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/dropout.h"
#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

struct ResidualNormShape {
  int64_t rows = 0, width = 0;
  double eps = 1e-6;
  Dropout dropout;  // of x
};

// y = residual + drop(x),  z = (y - mean(y)) * rstd(y) * weight + bias. Arrays [rows, width], contiguous.
template <typename T> struct ResidualNormForward {
  const T *residual = nullptr, *x = nullptr, *weight = nullptr, *bias = nullptr;
  T *y = nullptr, *z = nullptr;        // y may be the residual or x
  T *mean = nullptr, *rstd = nullptr;  // [rows], for backward; or null
};

// With g = the gradient of y through the norm, plus grad_y:  grad_residual = g,  grad_x = drop(g).
template <typename T> struct ResidualNormBackward {
  const T *grad_z = nullptr, *y = nullptr, *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  const T* grad_y = nullptr;  // or null
  T* grad_residual = nullptr;
  T* grad_x = nullptr;  // null: not wanted, or the same without dropout
  T *grad_weight = nullptr, *grad_bias = nullptr;
};

template <typename T> void residual_norm_forward(const ResidualNormShape&, const ResidualNormForward<T>&, Parallel&);
template <typename T> void residual_norm_backward(const ResidualNormShape&, const ResidualNormBackward<T>&, Parallel&);

// y = x * rms * weight with rms = 1 / sqrt(mean(x^2) + eps), and its gradients for grad_y. Arrays [rows, width], contiguous.
template <typename T> struct RmsNorm {
  int64_t rows = 0, width = 0;
  double eps = 1e-6;
  const T *x = nullptr, *weight = nullptr;
  T* y = nullptr;             // forward
  const T* grad_y = nullptr;  // backward
  T *grad_x = nullptr, *grad_weight = nullptr;
};
template <typename T> void rms_norm_forward(const RmsNorm<T>&, Parallel&);
template <typename T> void rms_norm_backward(const RmsNorm<T>&, Parallel&);

}  // namespace hinge::kernels
