// Adam with decoupled weight decay over all parameters in one pass, and the norm of all gradients. T is float or double.
#pragma once

#include <cstdint>
#include <vector>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// One parameter: its value, gradient and moments, `size` elements each.
template <typename T> struct AdamTensor {
  T* value = nullptr;
  const T* grad = nullptr;
  T *m = nullptr, *v = nullptr;
  int64_t size = 0;
  double decay = 0;  // value shrinks by this factor of itself: schedule * weight decay
};

// With g = grad_scale * grad:  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
// value -= lr * (m / bias1) / (sqrt(v / bias2) + eps) + decay * value, where bias1 = 1 - b1^t and bias2 = 1 - b2^t.
struct AdamStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double bias1 = 1, bias2 = 1;
  double grad_scale = 1;
};

template <typename T> void adam_step(const std::vector<AdamTensor<T>>&, const AdamStep&, Parallel&);

// Sum of the squares of all gradients, in float64; the same bits for any number of workers.
template <typename T> double squared_norm(const std::vector<AdamTensor<T>>&, Parallel&);

}  // namespace hinge::kernels
