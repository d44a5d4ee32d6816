// What a global memory (a feed-forward layer) does between its two products: scores = drop(phi(u)) of rows u [rows, slots], phi any
// activation or softmax along a row, and the gradient. Plain pointers; the same bits for any number of workers.
// The meaning in plain loops: src/kernels/sequence_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/dropout.h"
#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// What backward needs of forward: `kept` is u itself for a point-wise phi, the scores for relu (their zeros say all, those of dropout too)
// and phi(u), before dropout, for softmax.
template <typename T> struct SlotScoresForward {
  int64_t rows = 0, slots = 0;
  const T* u = nullptr;
  T* scores = nullptr;   // may be u, if u need not be kept
  T* softmax = nullptr;  // of softmax: where phi(u) goes, before dropout; may be u, and the scores if it need not be kept
  Dropout dropout;
};

// In one pass: du from the gradient of the scores, sums of du over rows, and the scores once more.
template <typename T> struct SlotScoresBackward {
  int64_t rows = 0, slots = 0;
  const T* kept = nullptr;
  const T* grad = nullptr;  // of the scores
  T* du = nullptr;          // may be grad
  T* scores = nullptr;      // null: not wanted
  T* grad_bias = nullptr;   // [slots]
  Dropout dropout;
};

void slot_scores_forward(Activation phi, const SlotScoresForward<float>&, Parallel&);
void slot_scores_forward(Activation phi, const SlotScoresForward<double>&, Parallel&);
void slot_scores_backward(Activation phi, const SlotScoresBackward<float>&, Parallel&);
void slot_scores_backward(Activation phi, const SlotScoresBackward<double>&, Parallel&);

}  // namespace hinge::kernels
