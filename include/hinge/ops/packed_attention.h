// Attention on packed projections, read where they are: queries, keys and values of self-attention in one array, keys and values of
// cross-attention in another; batched or jagged; with norms of queries and keys inside; with autograd. CPU tensors of float32 (fast) or
// float64. A second differentiation is not supported.
//
// Legend: B batch, L and S lengths, H heads, D head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "hinge/kernels/sparse_attention.h"
#include "hinge/ops/attention.h"

namespace hinge {

// Layer norms of each head's queries and keys before their product; all undefined: none.
struct QkNorm {
  at::Tensor q_weight, q_bias, k_weight, k_bias;  // [D]
  double eps = 1e-6;

  bool defined() const { return q_weight.defined(); }
};

struct PackedAttentionOptions {
  AttentionOptions attention;
  // Weights by a projection onto the simplex instead: of `attention`, only scale, causal, key_lengths, offsets, dropout and seed then have
  // a meaning.
  std::optional<kernels::SparseRule> sparse = {};
  QkNorm norm = {};
  bool statistics = false;  // return weight_sum and weight_log, too; not for `sparse`
};

struct PackedAttentionResult {
  at::Tensor out;                     // [B, L, H D] or, jagged, [L, H D]
  at::Tensor weight_sum, weight_log;  // [B, H, L], differentiable (see AttentionResult); undefined unless asked for
};

// Self-attention: qkv [B, L, 3 H D], or jagged [L, 3 H D], in the order (q, k, v), head, width. Its gradient is one packed array.
PackedAttentionResult packed_attention(const at::Tensor& qkv, int64_t heads, const PackedAttentionOptions& options);
// Cross-attention: q [B, L, H D] and kv [B, S, 2 H D], or jagged [L, H D] and [S, 2 H D].
PackedAttentionResult packed_attention(const at::Tensor& q, const at::Tensor& kv, int64_t heads, const PackedAttentionOptions& options);

// The same on separate tensors q [B, H, Lq, D], k and v [B, H, Lk, D] with any strides in B, H and L, without gradients and without norms:
// for decoding with a KV cache and for looking at weights. The result is [B, H, Lq, D].
at::Tensor attention_without_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PackedAttentionOptions& options);

// Applies the layer norm of each head to part `part` of packed projections [rows, parts H D], in place and without gradients: what
// packed_attention does inside, for keys that go into a KV cache.
void normalise_heads_(const at::Tensor& packed, int64_t parts, int64_t part, int64_t heads, const at::Tensor& weight,
                      const at::Tensor& bias, double eps);

}  // namespace hinge
