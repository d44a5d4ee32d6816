// Reads from memories of keys and values, H = phi(X K^T) V, on sequences that follow one another without padding, with autograd.
// Local memories (attention) are read where their projections are packed; global memories (feed-forward layers) hold parameters.
// CPU tensors of float32 (fast) or float64. A second differentiation is not supported.
#pragma once

#include <ATen/core/Tensor.h>

#include "hinge/kernels/activations.h"
#include "hinge/ops/attention.h"

namespace hinge {

// What turns the scores of a row into weights: the engine (point-wise functions and softmax), or a projection onto the simplex that gives
// exact zeros (kernels/sparse_attention.h).
enum class Read { engine, sparsemax, entmax15 };

struct ReadOptions {
  Read read = Read::engine;
  AttentionOptions attention;  // of sparsemax and entmax15 only scale, causal, offsets, dropout and seed have a meaning
  bool statistics = false;     // of the engine: weight_sum and weight_log, too
};

// Per row of the reader: what it read, and on request its statistics (AttentionResult), which are differentiable.
struct MemoryRead {
  at::Tensor out;                     // [T, H D]
  at::Tensor weight_sum, weight_log;  // [1, H, T]; undefined if not asked for
};

// A memory of the readers themselves: qkv [T, 3 H D] in the order (queries, keys, values), head, width. Its gradient is one packed array.
MemoryRead read_memory(const at::Tensor& qkv, int64_t heads, const ReadOptions& options);
// A memory of others: q [T, H D] reads kv [S, 2 H D] (keys, values). options.attention holds the offsets of both, or of none.
MemoryRead read_memory(const at::Tensor& q, const at::Tensor& kv, int64_t heads, const ReadOptions& options);

// The same of separate tensors q [B, H, Lq, D], k and v [B, H, Lk, D] with any strides in B, H and L, for decoding and for looking at
// weights: no gradients. The result is [B, H, Lq, D].
at::Tensor read_without_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ReadOptions& options);

// A global memory: drop(phi(x keys^T + key_bias)) values^T + value_bias + residual; x [..., T, C], keys [W, C], values [N, W], W slots. phi
// is any activation; softmax is along the slots. value_bias and residual may be undefined. `dropout` drops scores; `seed` says which.
at::Tensor read_global_memory(kernels::Activation phi, const at::Tensor& x, const at::Tensor& keys, const at::Tensor& key_bias,
                              const at::Tensor& values, const at::Tensor& value_bias, const at::Tensor& residual = {}, double dropout = 0,
                              int64_t seed = 0);

// The slots that each reader sees, float64 [T]: sequence s owns the readers [readers[s], readers[s + 1]) and the slots likewise; causal is
// right-aligned as in attention.
at::Tensor visible_slots(const at::Tensor& readers, const at::Tensor& slots, bool causal);

// The ReLUFormer's regulariser of rows with the weights w_j of n visible keys, S = sum w_j and E = sum w_j log w_j:
//
//   | log S |  +  max( H - 0.7 log n, 0 ),      H = log S - E / S     the entropy of the weights divided by their sum
//
// averaged over all rows: weight_sum and weight_log [1, H, T], visible (float64 [T]) the n of each row. Rows that see nothing count 0.
// A row without any weight (S = 0) has neither a logarithm nor an entropy, and a relu whose scores are all negative has no slope that
// could raise them: no gradient comes through whatever is asked for, as long as it is finite. So below S = f, f = 1e-3, the logarithm goes
// on as its tangent (value - log f + 1 - S / f, slope - 1 / f: small rows are still pulled up, never by more than that), and the entropy
// is taken with max(S, f) in the place of S, which ends the second term there without a jump.
at::Tensor reluformer_regulariser(const at::Tensor& weight_sum, const at::Tensor& weight_log, const at::Tensor& visible);

}  // namespace hinge
