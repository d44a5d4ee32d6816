// Multi-head attention as a module: packed projections around the engine's op, with every option of the engine by name. One class for
// self-attention and cross-attention, batched and jagged sequences, training and decoding with a KV cache.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/forward.h"
#include "nn/parameters.h"
#include "nn/sequence_attention.h"
#include "support/config.h"

namespace hinge::nn {

// The presets of a config: the engine's (hinge/ops/attention.h), then sparsemax, entmax15 and rela.
std::vector<std::string> attention_presets();

// An attention as configs have it: a preset, and single parts that differ from it. What is empty or none is not given.
struct AttentionConfig {
  std::string preset = {}, h = {}, length = {}, learn_alpha = {}, learn_gain = {}, learn_bias = {}, gate = {};
  std::optional<double> alpha = {}, length_n = {}, gain = {}, bias = {}, gamma = {}, dropout = {};
  std::optional<bool> qk_norm = {}, qk_norm_bias = {};

  template <class V> void visit(V& v) {
    v("preset", preset, "a named attention; the other keys change parts of it", or_empty(attention_presets()));
    v("h", h, "activation of the scores; empty: the preset's",
      or_empty({kernels::kActivationNames.begin(), kernels::kActivationNames.end()}));
    v("alpha", alpha, "weights are scaled by N^-alpha; none: the preset's");
    v("length", length, "what N is, where the word none means N = 1; empty: the preset's", or_empty(length_rule_names()));
    v("length_n", length_n, "N, for length = fixed");
    v("gain", gain, "factor of the weights; none: the preset's");
    v("bias", bias, "added to the scores; none: the preset's");
    v("gamma", gamma, "for the preset reluformer, whose gain is sqrt(2) / gamma; none: 1; other presets have none");
    v("learn_alpha", learn_alpha, "learn alpha: one value for the model, for each layer or for each head; empty: none",
      or_empty(sharing_words()));
    v("learn_gain", learn_gain, "learn the gain, likewise", or_empty(sharing_words()));
    v("learn_bias", learn_bias, "learn the bias, likewise", or_empty(sharing_words()));
    v("qk_norm", qk_norm, "layer norm of each head's queries and keys; none: false");
    v("qk_norm_bias", qk_norm_bias, "whether the norms of qk_norm have biases; none: true");
    v("gate", gate, "multiply the result by one more projection of the input, as it is or through a sigmoid; empty: none",
      or_empty(gate_words()));
    v("dropout", dropout, "probability of dropping an attention weight in training; none: 0");
  }

  // What shares a number that is learned, and what gates there are.
  static std::vector<std::string> sharing_words() { return {"none", "model", "layer", "head"}; }
  static std::vector<std::string> gate_words() { return {"none", "linear", "sigmoid"}; }
  bool has_gate() const { return !gate.empty() && gate != "none"; }

  // What to say where a config has what these keys took in former versions, true and false; `key` is where the attention is.
  static std::vector<support::Renames::Word> renames(const std::string& key);

 private:
  static std::vector<std::string> or_empty(std::vector<std::string> words) {
    words.emplace_back();
    return words;
  }
};

// An attention that has only what differs from model.attention, as overridden() takes it; the help of its keys says so.
struct AttentionOverride : AttentionConfig {
  template <class V> void visit(V& v) {
    auto instead = [&](const char* name, auto& value, const char*, const auto&... words) { v(name, value, help(name).c_str(), words...); };
    AttentionConfig::visit(instead);
  }

  static std::string help(const std::string& name);
};

// Before the names of parameters that all attentions of a model share: "attention.alpha".
inline constexpr const char* kSharedPrefix = "attention.";

// What `own` gives in the place of what `base` gives. With a preset of its own, an attention takes only qk_norm, qk_norm_bias, gate,
// dropout and gamma from the base: the other parts belong to the base's preset.
AttentionConfig overridden(const AttentionConfig& base, const AttentionOverride& own);

// The options of the op, checked; without dropout and norms. `key` is where the config is, such as "model.attention". Throws
// std::runtime_error for words that the engine does not know and for parts that do not go together.
// The length rule `keys` becomes `visible` in a causal attention: a decoder does not know how many keys there will be.
PackedAttentionOptions attention_options(const AttentionConfig& config, const std::string& key, bool causal = false);

// Throws std::runtime_error, with the key, for an attention that ranks cannot share (nn/sequence_attention.h).
void require_splittable(const AttentionConfig& config, const std::string& key);

// The attentions among the layers that a forward pass has shown.
std::vector<AttentionView> attentions_of(const std::vector<LayerView>& layers);

// The weights w [B, H, Lq, Lk] of an attention, from the engine itself: what it gives for the columns of the unit matrix as values. Made
// for looking at short inputs.
at::Tensor attention_weights(const AttentionView& view);

class Attention {
 public:
  // What is attended to: the input itself, or the tokens of another sequence, the context.
  enum class To { self, context };

  Attention(const Builder& builder, const AttentionConfig& config, const std::string& key, int64_t width, int64_t heads, To to,
            bool causal = false);

  // x [B, L, width] or, jagged, [T, width]; the result of the output projection, plus `residual` if that is defined. `view` may be null.
  // The regulariser is that of jagged sequences.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& context, const Offsets& offsets, const Forward& forward,
                     const at::Tensor& residual = {}, LayerView* view = nullptr) const;

  // Decoding, without gradients, in parts.
  // Queries [R, width] of x [R, width]; of self-attention with the keys and values of x behind them: [R, 3 width].
  at::Tensor project(const at::Tensor& x) const;
  // Keys and values [S, 2 width] of a context [S, width].
  at::Tensor keys_and_values(const at::Tensor& context) const;
  // The queries q [R, width] of x attend to kv [R, n, 2 width], each row to its own, or by offsets to kv [S, 2 width]. With a split, kv are
  // the keys and values of this rank's tokens of the context, and all ranks have the same queries.
  at::Tensor attend(const at::Tensor& x, const at::Tensor& q, const at::Tensor& kv, const Offsets& offsets = {},
                    const at::Tensor& residual = {}, const SequenceSplit* split = nullptr) const;

  // Whether the regulariser is made for it: weights are not negative and their sum is free.
  bool regularised() const;

 private:
  // Of tokens that are split over ranks. `kv` undefined: `packed` holds keys and values, too.
  SequenceAttentionResult attend_over_ranks(const at::Tensor& packed, const at::Tensor& kv, const PackedAttentionOptions& options,
                                            const SequenceSplit& split) const;
  at::Tensor finish(const at::Tensor& x, const at::Tensor& attended, const at::Tensor& residual) const;

  int64_t width_, heads_;
  To to_;
  double dropout_;
  PackedAttentionOptions options_;
  at::Tensor qkv_weight_, qkv_bias_;                    // to itself
  at::Tensor q_weight_, q_bias_, kv_weight_, kv_bias_;  // to a context
  bool sigmoid_gate_ = false;
  at::Tensor gate_weight_, gate_bias_, rms_weight_, out_weight_, out_bias_;
};

}  // namespace hinge::nn
