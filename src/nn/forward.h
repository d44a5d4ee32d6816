// What a forward pass brings along for every layer, and what layers show of themselves on request.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/row_regulariser.h"
#include "hinge/ops/packed_attention.h"
#include "nn/random.h"
#include "nn/sequence_ranks.h"

namespace hinge::nn {

// The queries, keys and values of an attention as the engine got them.
struct AttentionView {
  at::Tensor q, k, v;  // [B, H, Lq, D], [B, H, Lk, D]
  PackedAttentionOptions options;
};

// A feed-forward layer's input and parameters.
struct FeedForwardView {
  kernels::Activation activation = kernels::Activation::relu;
  at::Tensor x;              // [..., width]
  at::Tensor fc1, fc1_bias;  // [units, width], [units]
  at::Tensor values;         // [units, width]
};

// One layer. The papers see attention and feed-forward layers as one thing, a read from a memory of keys and values: attention's keys and
// values are projections of tokens, a feed-forward layer's are parameters, one per hidden unit. So both can show weights and values.
struct LayerView {
  std::string name;                        // "decoder.0.cross_attn"
  at::Tensor residual, output;             // [..., width]; the output is what is added to the residual, before any dropout
  std::optional<AttentionView> attention;  // of an attention (of the preset rela: before the norm of its result)
  std::optional<FeedForwardView> ffn;      // of a feed-forward layer
};

// Sums of the ReLUFormer's regulariser (hinge/ops/regulariser.h) over the attentions that have one.
struct Regulariser {
  double margin = kernels::kRegulariserMargin;  // of the entropy, as a share of log n
  at::Tensor sum = {};
  int64_t attentions = 0;
};

struct Forward {
  Noise* noise = nullptr;                   // none: nothing is dropped
  Regulariser* regulariser = nullptr;       // none: not computed
  std::vector<LayerView>* views = nullptr;  // none: nothing is shown; else every layer adds its view, in the order of computation
  const SequenceSplit* sequence = nullptr;  // none: all tokens are here
};

// Sequences that follow one another without padding: sequence s owns the queries [q_offsets[s], q_offsets[s + 1]) and the keys likewise.
// Undefined for batches of sequences of one length.
struct Offsets {
  at::Tensor q, k;  // int64 [sequences + 1]
};

}  // namespace hinge::nn
