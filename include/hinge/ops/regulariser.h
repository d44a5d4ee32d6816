// The ReLUFormer's regulariser of attention weights, with autograd, on CPU tensors of float32 or float64.
#pragma once

#include <ATen/core/Tensor.h>

#include "hinge/kernels/row_regulariser.h"

namespace hinge {

// How many keys each query sees, float64 [T]: sequence s owns the queries [q_offsets[s], q_offsets[s + 1]) and the keys likewise; causal is
// right-aligned as in attention.
at::Tensor visible_keys(const at::Tensor& q_offsets, const at::Tensor& k_offsets, bool causal);

// Of rows with the weights w_j of n visible keys, S = sum w_j and E = sum w_j log w_j:
//
//   | log S |  +  max( H - margin log n, 0 ),      H = log S - E / S     the entropy of the weights divided by their sum
//
// averaged over all rows; an infinite margin leaves the first term alone. weight_sum and weight_log [1, H, T], visible (float64 [T]) the n
// of each row. Rows that see nothing count 0. A row without any weight (S = 0) has neither a logarithm nor an entropy, and a relu whose
// scores are all negative has no slope that could raise them: no gradient comes through whatever is asked for, as long as it is finite. So
// below S = f, f = 1e-3, the logarithm goes on as its tangent (value - log f + 1 - S / f, slope - 1 / f: small rows are still pulled up,
// never by more than that), and the entropy is taken with max(S, f) in the place of S, which ends the second term there without a jump.
at::Tensor reluformer_regulariser(const at::Tensor& weight_sum, const at::Tensor& weight_log, const at::Tensor& visible,
                                  double margin = kernels::kRegulariserMargin);

}  // namespace hinge
