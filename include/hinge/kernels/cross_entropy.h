// Cross-entropies of logits [rows, classes] with their gradient, in one pass, for float and double. Row i's target gives class labels[i]
// the share lambda and class second[i] the share 1 - lambda (mixup); without `second` it is labels[i] alone.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

enum class CrossEntropy {
  softmax,  // - sum_c target_c log softmax(x)_c
  sigmoid,  // - sum_c target_c log sigmoid(x_c) + (1 - target_c) log sigmoid(-x_c)
};

template <typename T> struct CrossEntropyRows {
  int64_t rows = 0, classes = 0;
  const T* logits = nullptr;
  const int64_t *labels = nullptr, *second = nullptr;
  double lambda = 1;
  T* losses = nullptr;       // [rows]
  T* grad_logits = nullptr;  // [rows, classes], of the sum of the losses; or null
};

template <typename T> void cross_entropy(CrossEntropy kind, const CrossEntropyRows<T>&, Parallel&);

}  // namespace hinge::kernels
