// Attention of a sequence on itself as a module: packed projections around the engine's op, with every option of the engine by name.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hinge/ops/dense.h"
#include "nn/parameters.h"

namespace hinge::nn {

// The attention of a model, as configs have it: a preset, and single parts that differ from it.
struct AttentionConfig {
  std::string preset = "relu-vit";
  std::string h = {}, length = {};  // empty: the preset's
  std::optional<double> alpha = {}, gain = {}, bias = {}, gamma = {}, dropout = {};
  double length_n = 1.0;
  bool learn_alpha = false, learn_gain = false, learn_bias = false;
  bool qk_norm = true;
  bool gate = false;

  template <class V> void visit(V& v) {
    v("preset", preset,
      "point in the family of attentions that the other keys change: relu-vit, reluformer, relu2, sigmoid, silu, linear, softmax");
    visit_parts(v);
  }

  // All but the preset.
  template <class V> void visit_parts(V& v) {
    v("h", h,
      "activation of the scores: relu, relu2, gelu, gelu_tanh, softplus, identity, relu6, sigmoid, silu, softmax; empty: the preset's");
    v("alpha", alpha, "weights are scaled by N^-alpha");
    v("length", length, "what N is: none (1), fixed, keys, visible; empty: the preset's");
    v("length_n", length_n, "N, for length = fixed");
    v("gain", gain, "factor of the weights");
    v("bias", bias, "added to the scores");
    v("gamma", gamma, "of the preset reluformer, whose gain is sqrt(2) / gamma; none: 1");
    v("learn_alpha", learn_alpha, "learn alpha, a number for each head");
    v("learn_gain", learn_gain, "learn the gain, a number for each head");
    v("learn_bias", learn_bias, "learn the bias, a number for each head");
    v("qk_norm", qk_norm, "layer norm of each head's queries and keys");
    v("gate", gate, "multiply the result by one more projection of the input");
    v("dropout", dropout, "probability of dropping an attention weight in training; none: 0");
  }
};

// The engine's options for it. Throws std::runtime_error for words that the engine does not know and for parts that do not go together.
AttentionOptions attention_options(const AttentionConfig& config);

// What a forward pass may be asked to show of its attention.
struct AttentionView {
  at::Tensor q, k, v;  // [B, H, L, D], as the engine got them
  AttentionOptions options;
};

// The weights [parts * width, width] of projections that are packed, each with Xavier's start by itself: each has its own fan-out.
at::Tensor packed_projections(const Builder& builder, const std::string& name, int64_t parts, int64_t width);

// What every attention has beside its projections of queries, keys and values.
struct AttentionParameters {
  QkNorm norm;
  at::Tensor gate_weight, gate_bias, rms_weight, out_weight, out_bias;  // the third of the preset rela

  // What is learned of alpha, gain and bias takes its place in `options`.
  AttentionParameters(const Builder& builder, const AttentionConfig& config, AttentionOptions& options, int64_t width, int64_t heads);

  // Of what was read by x: RMS norm and gate, if there are any, and output projection, plus `residual` if that is defined.
  at::Tensor finish(const at::Tensor& x, const at::Tensor& read, const at::Tensor& residual = {}) const;
};

class SelfAttention {
 public:
  SelfAttention(const Builder& builder, const AttentionConfig& config, int64_t width, int64_t heads);

  // x [B, L, width], normalised; the result of the output projection plus `residual` if that is defined.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, bool training, AttentionView* view = nullptr) const;

 private:
  AttentionConfig config_;
  int64_t width_, heads_;
  AttentionOptions options_;
  at::Tensor qkv_weight_, qkv_bias_;
  AttentionParameters parameters_;
};

// The weights w [B, H, Lq, Lk] of an attention, from the engine itself: what `read` gives for the columns of the unit matrix as values.
using ReadValues = std::function<at::Tensor(const at::Tensor& values)>;
at::Tensor attention_weights(const AttentionView& view, const ReadValues& read);
at::Tensor attention_weights(const AttentionView& view);

}  // namespace hinge::nn
