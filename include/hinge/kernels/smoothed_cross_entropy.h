// The cross-entropy of logits over a vocabulary with smoothed labels, loss and gradient in one pass.
// Plain pointers to float or double; the same bits for any number of workers. The meaning in plain loops: src/kernels/sequence_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// Row i's target gives its label the share 1 - smoothing, and each of the classes smoothing / classes besides.
template <typename T> struct SmoothedCrossEntropy {
  int64_t rows = 0, classes = 0;
  T* logits = nullptr;  // [rows, classes]; with `gradient`, overwritten by grad_scale times the gradient of the row's loss
  const int64_t* labels = nullptr;
  double smoothing = 0;
  bool gradient = false;
  double grad_scale = 1;
  double *losses = nullptr, *nll = nullptr;  // [rows]: - sum_c target_c log p_c and - log p_label
  uint8_t* right = nullptr;                  // [rows]: 1 if no class has a larger logit than the label
};
template <typename T> void smoothed_cross_entropy(const SmoothedCrossEntropy<T>&, Parallel&);

}  // namespace hinge::kernels
