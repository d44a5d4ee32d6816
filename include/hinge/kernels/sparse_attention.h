// Attention whose weights are a projection of the scores onto the simplex, with exact zeros: sparsemax (Martins and Astudillo, 2016) and
// 1.5-entmax (Peters, Niculae and Martins, 2019). Baselines beside the fused engine (attention.h): exact, in memory O(L), not tuned.
// T is float or double.
//
//   x_ij = scale * q_i . k_j over the visible j;  w_i >= 0 with sum 1;  out_i = sum_j dropout(w_ij) * v_j
//   sparsemax   w_ij = max(x_ij - tau_i, 0)
//   entmax15    w_ij = max(x_ij / 2 - tau_i, 0)^2
//
// with the tau_i that makes the sum 1. A row that sees no key gives zero. The meaning in plain loops: src/kernels/sequence_reference.h.
#pragma once

#include "hinge/kernels/attention.h"

namespace hinge::kernels {

enum class SparseRule { sparsemax, entmax15 };

// Of the shape Hq must be Hkv. Of AttentionRule only scale, dropout and seed count; of the arrays q, k, v, out and q, k, v, grad_out, dq,
// dk, dv. Same input, same bits, for any number of workers.
template <typename T>
void sparse_attention_forward(SparseRule, const AttentionShape&, const AttentionRule&, const AttentionForward<T>&, Parallel&);
template <typename T>
void sparse_attention_backward(SparseRule, const AttentionShape&, const AttentionRule&, const AttentionBackward<T>&, Parallel&);

}  // namespace hinge::kernels
