// Layer normalisation of rows, forward and backward:
//
//   y = (x - mean(x)) * rstd(x) * weight + bias,   rstd = 1 / sqrt(variance + eps)
//
// Plain pointers to float or double; the same bits for any number of workers. The meaning in plain loops: src/kernels/dense_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// `rows` rows, each of `groups` neighbouring groups of `width` elements that are normalised by themselves with one weight and bias (the
// heads of a query, for example; 1 for a plain layer norm).
struct LayerNormShape {
  int64_t rows = 0, groups = 1, width = 0;
  double eps = 1e-6;
};

// An array of rows, `stride` elements apart.
template <typename T> struct RowsView {
  T* data = nullptr;
  int64_t stride = 0;
};

template <typename T> struct LayerNormForward {
  RowsView<const T> x;
  const T *weight = nullptr, *bias = nullptr;  // [width]
  RowsView<T> y;                               // may be x
  T *mean = nullptr, *rstd = nullptr;          // [rows * groups], for backward; or null
};

template <typename T> struct LayerNormBackward {
  RowsView<const T> grad_y, x;
  const T* weight = nullptr;
  const T *mean = nullptr, *rstd = nullptr;
  RowsView<const T> grad_skip;  // added to grad_x if its data is not null: the gradient of a branch around the norm
  RowsView<T> grad_x;           // may be grad_y
  T *grad_weight = nullptr, *grad_bias = nullptr;
};

template <typename T> void layer_norm_forward(const LayerNormShape&, const LayerNormForward<T>&, Parallel&);
template <typename T> void layer_norm_backward(const LayerNormShape&, const LayerNormBackward<T>&, Parallel&);

}  // namespace hinge::kernels
