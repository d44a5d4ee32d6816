// The ReLUFormer's regulariser of rows of attention weights, from their sums: S = sum w, E = sum w log w, n visible keys,
//
//   | log S |  +  max( H - margin log n, 0 ),      H = log S - E / S
//
// The margin is 0.7 in the paper; an infinite one leaves the first term alone.
// Below S = kRegulariserFloor the logarithm of the first term goes on as its tangent and the second takes the floor in the place of S:
// values and slopes stay finite, also for a row without any weight (S = 0).
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

inline constexpr double kRegulariserFloor = 1e-3, kRegulariserMargin = 0.7;

struct RowRegulariser {
  double value = 0, slope_sum = 0, slope_log = 0;  // the slopes are those along S and E
};
RowRegulariser row_regulariser(double weight_sum, double weight_log, double visible, double margin = kRegulariserMargin);

// Of `heads` times `rows` rows: the sum of the values divided by `count`, and its gradients [heads, rows] if those are not null.
template <typename T> struct RegulariserRows {
  int64_t heads = 0, rows = 0;
  const T *weight_sum = nullptr, *weight_log = nullptr;  // [heads, rows]
  const double* visible = nullptr;                       // [rows]; 0: the row counts nothing
  double count = 1, margin = kRegulariserMargin;
  T *grad_sum = nullptr, *grad_log = nullptr;
};
double regulariser_rows(const RegulariserRows<float>&, Parallel&);
double regulariser_rows(const RegulariserRows<double>&, Parallel&);

// How many keys each row sees: sequence s owns the rows [q_offsets[s], q_offsets[s + 1]) and the keys [k_offsets[s], k_offsets[s + 1]);
// causal is right-aligned within each sequence.
void visible_keys(const int64_t* q_offsets, const int64_t* k_offsets, int64_t sequences, bool causal, double* visible);

}  // namespace hinge::kernels
