// What a feed-forward layer does between its two products: hidden = drop(activation(u)) of rows u [rows, units], where softmax runs along a
// row, and the gradient. Plain pointers to float or double; the same bits for any number of workers.
// The meaning in plain loops: src/kernels/sequence_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/dropout.h"
#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// What backward needs of forward: `kept` is u itself for a point-wise activation, the hidden units for relu (their zeros say all, those of
// dropout too) and the softmax of u, before dropout, for softmax.
template <typename T> struct HiddenActivationForward {
  int64_t rows = 0, units = 0;
  const T* u = nullptr;
  T* hidden = nullptr;   // may be u, if u need not be kept
  T* softmax = nullptr;  // for softmax: where it goes before dropout; may be u, and `hidden` if it need not be kept
  Dropout dropout;
};

// In one pass: du from the gradient of the hidden units, sums of du over rows, and the hidden units once more.
template <typename T> struct HiddenActivationBackward {
  int64_t rows = 0, units = 0;
  const T* kept = nullptr;
  const T* grad = nullptr;  // of the hidden units
  T* du = nullptr;          // may be grad
  T* hidden = nullptr;      // null: not wanted
  T* grad_bias = nullptr;   // [units]
  Dropout dropout;
};

template <typename T> void hidden_activation_forward(Activation activation, const HiddenActivationForward<T>&, Parallel&);
template <typename T> void hidden_activation_backward(Activation activation, const HiddenActivationBackward<T>&, Parallel&);

}  // namespace hinge::kernels
