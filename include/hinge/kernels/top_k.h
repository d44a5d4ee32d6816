// The likeliest classes of rows of logits, with their log-probabilities: what a search for sequences asks of every row at every step.
// Plain pointers; the same bits for any number of workers. The meaning in plain loops: src/kernels/top_k_reference.h.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// Logits may be normalised already: then log_normaliser is 0 but for rounding. A row with a NaN, or with infinity or nothing but - infinity
// in it, has a log_normaliser that is not finite, and its other results mean nothing.
struct TopK {
  int64_t rows = 0, classes = 0, k = 1;  // 1 <= k <= classes
  const float* logits = nullptr;         // [rows, classes]
  int32_t* index = nullptr;              // [rows, k]: classes, the likeliest first; of equal ones the lower number first
  float* log_probability = nullptr;      // [rows, k], theirs
  float* log_normaliser = nullptr;       // [rows]: log sum exp of the row; log-probabilities are logits less this
};
void top_k(const TopK&, Parallel&);

}  // namespace hinge::kernels
