#include "nn/attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "hinge/ops/dense.h"
#include "hinge/ops/regulariser.h"
#include "hinge/ops/sequence.h"

namespace hinge::nn {
namespace {

using at::Tensor;
using kernels::Activation;
using kernels::LengthRule;

// Presets beside the engine's. rela (Zhang, Titov and Sennrich, 2021) is relu without a length rule and an RMS norm of the result.
struct SparsePreset {
  const char* name;
  std::optional<kernels::SparseRule> rule;
};
constexpr const char* kRela = "rela";
constexpr SparsePreset kSparsePresets[] = {
    {"sparsemax", kernels::SparseRule::sparsemax}, {"entmax15", kernels::SparseRule::entmax15}, {kRela, std::nullopt}};

const SparsePreset* sparse_preset(const std::string& name) {
  for (const SparsePreset& preset : kSparsePresets)
    if (name == preset.name) return &preset;
  return nullptr;
}

// Errors of a config begin with the place it stands at.
class Check {
 public:
  explicit Check(const std::string& key) : key_(key) {}

  template <class... Args> void require(bool holds, fmt::format_string<Args...> text, Args&&... args) const {
    if (!holds) throw std::runtime_error(key_ + fmt::format(text, std::forward<Args>(args)...));
  }
  void known(const char* part, const std::string& given, const std::vector<std::string>& words) const {
    require(std::find(words.begin(), words.end(), given) != words.end(), ".{}: '{}' is unknown; known are {}", part, given,
            fmt::join(words, ", "));
  }
  void positive(const char* part, double value) const {
    require(value > 0 && std::isfinite(value), ".{} must be positive, got {}", part, value);
  }
  void finite(const char* part, const std::optional<double>& value) const {
    require(!value || std::isfinite(*value), ".{} must be a finite number, got {}", part, value.value_or(0));
  }

 private:
  const std::string& key_;
};

bool is_learned(const std::string& sharing) { return !sharing.empty() && sharing != "none"; }

// Which parts of the config, by name, the fixed formula of a preset or of softmax leaves no room for.
std::vector<std::string> parts_given(const AttentionConfig& config) {
  std::vector<std::string> parts;
  const auto add = [&](bool given, const char* name) {
    if (given) parts.emplace_back(name);
  };
  add(!config.length.empty(), "length"), add(config.alpha.has_value(), "alpha"), add(config.gain.has_value(), "gain");
  add(config.bias.has_value(), "bias"), add(is_learned(config.learn_alpha), "learn_alpha");
  add(is_learned(config.learn_gain), "learn_gain"), add(is_learned(config.learn_bias), "learn_bias");
  return parts;
}

AttentionOptions engine_options(const AttentionConfig& config, const Check& check, bool causal) {
  // Only the preset reluformer has a gamma: a config that gives one can still be trained with another preset, to compare.
  const double gamma = config.preset == "reluformer" ? config.gamma.value_or(1) : 1, length_n = config.length_n.value_or(1);
  check.positive("length_n", length_n);
  check.finite("alpha", config.alpha), check.finite("gain", config.gain), check.finite("bias", config.bias);
  AttentionOptions options = preset(config.preset, gamma);
  if (!config.h.empty()) {
    check.known("h", config.h, {kernels::kActivationNames.begin(), kernels::kActivationNames.end()});
    options.h = *kernels::parse_activation(config.h);
  }
  if (!config.length.empty()) {
    check.known("length", config.length, length_rule_names());
    options.length_rule = *parse_length_rule(config.length);
  }
  check.require(length_n == 1 || options.length_rule == LengthRule::fixed, ".length_n belongs to length = fixed");
  options.length_n = length_n;
  if (options.h == Activation::softmax) {
    const std::vector<std::string> parts = parts_given(config);
    check.require(parts.empty(), ": softmax has no length rule, alpha, gain or bias; remove {}", fmt::join(parts, ", "));
    AttentionOptions softmax;
    softmax.h = Activation::softmax;
    return softmax;
  }
  check.require(!causal || config.length != "keys",
                ".length: a decoder does not know how many keys there will be; take visible, fixed or none instead of keys");
  if (causal && options.length_rule == LengthRule::keys) options.length_rule = LengthRule::visible;
  if (config.alpha) options.alpha = *config.alpha;
  if (config.gain) options.gain = *config.gain;
  if (config.bias) options.bias = *config.bias;
  return options;
}

// The weights [parts * width, width] of projections that are packed, each with Xavier's start by itself: each has its own fan-out.
Tensor packed_projections(const Builder& builder, const std::string& name, int64_t parts, int64_t width) {
  Parameters scratch;
  std::vector<Tensor> all;
  for (int64_t i = 0; i < parts; ++i) all.push_back(Builder{scratch, builder.generator}.xavier(std::to_string(i), width, width).detach());
  return builder.parameters.add(builder.prefix + name, at::cat(all), /*decays=*/true);
}

// The number that all attentions of the model share: made by the first that asks for it.
Tensor shared_number(const Builder& builder, const std::string& name, double start, const std::string& key) {
  const std::string shared = kSharedPrefix + name;
  const Parameter* known = builder.parameters.find(shared);
  if (!known) return Builder{builder.parameters, builder.generator}.constant(shared, {1}, start);
  const double there = known->value.item<double>();
  if (there != static_cast<float>(start))
    throw std::runtime_error(
        fmt::format("{0}.learn_{1} = model: the attentions share one {1}, but here it starts at {2} and elsewhere at {3}; "
                    "give them the same {1}, or learn one for each layer",
                    key, name, start, there));
  return known->value;
}

// [B, L, parts H D] or [L, parts H D] as [B, H, L, D].
Tensor part_of(const Tensor& packed, int64_t parts, int64_t which, int64_t heads) {
  const Tensor batched = packed.dim() == 2 ? packed.unsqueeze(0) : packed;
  return batched.view({batched.size(0), batched.size(1), parts, heads, batched.size(2) / (parts * heads)}).select(2, which).transpose(1, 2);
}

}  // namespace

std::vector<std::string> attention_presets() {
  std::vector<std::string> names = preset_names();
  for (const SparsePreset& preset : kSparsePresets) names.emplace_back(preset.name);
  return names;
}

std::vector<support::Renames::Word> AttentionConfig::renames(const std::string& key) {
  std::vector<support::Renames::Word> words = {{key + ".gate", true, "linear"}, {key + ".gate", false, "none"}};
  for (const char* learned : {".learn_alpha", ".learn_gain", ".learn_bias"}) {
    words.push_back({key + learned, true, "head"});
    words.push_back({key + learned, false, "none"});
  }
  return words;
}

std::string AttentionOverride::help(const std::string& name) {
  const std::string instead = "instead of model.attention." + name;
  return name == "preset" ? instead + "; if it is given, only qk_norm, qk_norm_bias, gate, gamma and dropout are taken from model.attention"
                          : instead;
}

AttentionConfig overridden(const AttentionConfig& base, const AttentionOverride& own) {
  AttentionConfig result = own;
  const auto inherit = [](auto& value, const auto& from) {
    if (!value) value = from;
  };
  const auto inherit_word = [](std::string& word, const std::string& from) {
    if (word.empty()) word = from;
  };
  inherit(result.qk_norm, base.qk_norm), inherit(result.qk_norm_bias, base.qk_norm_bias), inherit_word(result.gate, base.gate);
  inherit(result.dropout, base.dropout), inherit(result.gamma, base.gamma);
  if (!own.preset.empty()) return result;
  result.preset = base.preset;
  inherit_word(result.h, base.h);
  if (own.length.empty()) {
    result.length = base.length;
    inherit(result.length_n, base.length_n);
  }
  inherit(result.alpha, base.alpha), inherit(result.gain, base.gain);
  inherit(result.bias, base.bias), inherit_word(result.learn_alpha, base.learn_alpha);
  inherit_word(result.learn_gain, base.learn_gain), inherit_word(result.learn_bias, base.learn_bias);
  return result;
}

PackedAttentionOptions attention_options(const AttentionConfig& config, const std::string& key, bool causal) {
  const Check check(key);
  check.known("preset", config.preset, attention_presets());
  const double dropout = config.dropout.value_or(0);
  check.require(dropout >= 0 && dropout < 1, ".dropout must be in [0, 1), got {}", dropout);
  check.positive("gamma", config.gamma.value_or(1));
  for (const auto& [part, word] : {std::pair("learn_alpha", config.learn_alpha), std::pair("learn_gain", config.learn_gain),
                                   std::pair("learn_bias", config.learn_bias)})
    if (!word.empty()) check.known(part, word, AttentionConfig::sharing_words());
  if (!config.gate.empty()) check.known("gate", config.gate, AttentionConfig::gate_words());
  PackedAttentionOptions options;
  if (const SparsePreset* sparse = sparse_preset(config.preset)) {
    std::vector<std::string> parts = parts_given(config);
    if (!config.h.empty()) parts.emplace_back("h");
    if (config.length_n) parts.emplace_back("length_n");
    check.require(parts.empty(), ": the preset {} takes only qk_norm, gate and dropout; remove {}", config.preset, fmt::join(parts, ", "));
    options.sparse = sparse->rule;
    options.attention.length_rule = LengthRule::none;
  } else {
    options.attention = engine_options(config, check, causal);
  }
  options.attention.causal = causal;
  return options;
}

Attention::Attention(const Builder& builder, const AttentionConfig& config, const std::string& key, int64_t width, int64_t heads, To to,
                     bool causal)
    : width_(width), heads_(heads), to_(to), dropout_(config.dropout.value_or(0)), options_(attention_options(config, key, causal)) {
  if (width % heads != 0) throw std::runtime_error(fmt::format("model.width {} is not a multiple of model.heads {}", width, heads));
  const int64_t depth = width / heads;
  if (to == To::self) {
    qkv_weight_ = packed_projections(builder, "qkv.weight", 3, width);
    qkv_bias_ = builder.constant("qkv.bias", {3 * width}, 0);
  } else {
    q_weight_ = builder.xavier("q.weight", width, width);
    q_bias_ = builder.constant("q.bias", {width}, 0);
    kv_weight_ = packed_projections(builder, "kv.weight", 2, width);
    kv_bias_ = builder.constant("kv.bias", {2 * width}, 0);
  }
  if (config.qk_norm.value_or(false)) {
    options_.norm.eps = kNormEps;
    const auto bias = [&](const char* name) {  // without one, zeros that are no parameter
      return config.qk_norm_bias.value_or(true) ? builder.constant(name, {depth}, 0) : at::zeros({depth});
    };
    options_.norm.q_weight = builder.constant("q_norm.weight", {depth}, 1);
    options_.norm.q_bias = bias("q_norm.bias");
    options_.norm.k_weight = builder.constant("k_norm.weight", {depth}, 1);
    options_.norm.k_bias = bias("k_norm.bias");
  }
  const auto learned = [&](const std::string& sharing, const char* name, PerHead& option, double otherwise) {
    if (!is_learned(sharing)) return;
    const double start = option.values.defined() ? option.values.item<double>() : otherwise;
    if (sharing == "model")
      option = shared_number(builder, name, start, key);
    else
      option = builder.constant(name, {sharing == "head" ? heads : 1}, start);
  };
  learned(config.learn_alpha, "alpha", options_.attention.alpha, 1);
  learned(config.learn_gain, "gain", options_.attention.gain, 1);
  learned(config.learn_bias, "bias", options_.attention.bias, 0);
  if (config.has_gate()) {
    sigmoid_gate_ = config.gate == "sigmoid";
    gate_weight_ = builder.xavier("gate.weight", width, width);
    gate_bias_ = builder.constant("gate.bias", {width}, 0);
  }
  if (config.preset == kRela) rms_weight_ = builder.constant("rms_norm.weight", {width}, 1);
  out_weight_ = builder.xavier("proj.weight", width, width);
  out_bias_ = builder.constant("proj.bias", {width}, 0);
}

void require_splittable(const AttentionConfig& config, const std::string& key) {
  const Check check(key);
  check.require(
      config.dropout.value_or(0) == 0,
      ".dropout is {}, but which weights are dropped depends on their place in the whole sequence: with train.sequence_parallel it "
      "must be 0",
      config.dropout.value_or(0));
  check.require(!attention_options(config, key).sparse, ".preset {} needs whole rows of scores: train.sequence_parallel must be 1",
                config.preset);
}

bool Attention::regularised() const {
  const Activation h = options_.attention.h;
  return !options_.sparse && !rms_weight_.defined() && (h == Activation::relu || h == Activation::relu2 || h == Activation::relu6);
}

Tensor Attention::finish(const Tensor& x, const Tensor& attended, const Tensor& residual) const {
  Tensor result = rms_weight_.defined() ? rms_norm(attended, rms_weight_, kNormEps) : attended;
  if (gate_weight_.defined()) {
    const Tensor gate = hinge::linear(x, gate_weight_, gate_bias_);
    result = result * (sigmoid_gate_ ? at::sigmoid(gate) : gate);
  }
  return hinge::linear(result, out_weight_, out_bias_, residual);
}

Tensor Attention::forward(const Tensor& x, const Tensor& context, const Offsets& offsets, const Forward& forward, const Tensor& residual,
                          LayerView* view) const {
  PackedAttentionOptions options = options_;
  if (!forward.sequence) options.attention.q_offsets = offsets.q, options.attention.k_offsets = offsets.k;
  if (forward.noise && dropout_ > 0) {
    options.attention.dropout = dropout_;
    options.attention.seed = at::full({1}, forward.noise->next(), at::kLong);
  }
  options.statistics = forward.regulariser && regularised();
  const bool self = to_ == To::self;
  const Tensor packed = self ? hinge::linear(x, qkv_weight_, qkv_bias_) : hinge::linear(x, q_weight_, q_bias_);
  const Tensor kv = self ? Tensor() : hinge::linear(context, kv_weight_, kv_bias_);
  if (view) {
    AttentionView shown{part_of(packed, self ? 3 : 1, 0, heads_), {}, {}, options};
    shown.k = self ? part_of(packed, 3, 1, heads_) : part_of(kv, 2, 0, heads_);
    shown.v = self ? part_of(packed, 3, 2, heads_) : part_of(kv, 2, 1, heads_);
    if (const QkNorm& norm = options.norm; norm.defined()) {
      shown.q = layer_norm_fork(shown.q, norm.q_weight, norm.q_bias, norm.eps).first;
      shown.k = layer_norm_fork(shown.k, norm.k_weight, norm.k_bias, norm.eps).first;
    }
    view->attention = std::move(shown);
  }
  const auto add_to_total = [&](const Tensor& own) {
    Regulariser& total = *forward.regulariser;
    total.sum = total.sum.defined() ? total.sum + own : own;
    ++total.attentions;
  };
  if (forward.sequence) {
    const SequenceAttentionResult got = attend_over_ranks(packed, kv, options, *forward.sequence);
    if (options.statistics) {
      const SequenceSplit& split = *forward.sequence;
      const TokenShares& keys = self ? split.own : split.context;
      const Tensor visible = keys_seen(options.attention, *split.ranks, split.own, keys).flatten();
      const double rows = static_cast<double>(got.weight_sum.size(2)), all = static_cast<double>(split.own.tokens());
      // Of the mean over the rows of all ranks, this rank's part; without rows nothing, but in the graph, as the others are.
      add_to_total(rows > 0 ? reluformer_regulariser(got.weight_sum, got.weight_log, visible, forward.regulariser->margin) * (rows / all)
                            : got.weight_sum.sum());
    }
    return finish(x, got.out.transpose(1, 2).reshape(x.sizes()), residual);
  }
  const PackedAttentionResult got = self ? packed_attention(packed, heads_, options) : packed_attention(packed, kv, heads_, options);
  if (options.statistics) {
    if (!offsets.q.defined()) throw std::logic_error("the regulariser needs the offsets of jagged sequences");
    const Tensor visible = visible_keys(offsets.q, offsets.k, options.attention.causal);
    add_to_total(reluformer_regulariser(got.weight_sum, got.weight_log, visible, forward.regulariser->margin));
  }
  return finish(x, got.out, residual);
}

SequenceAttentionResult Attention::attend_over_ranks(const Tensor& packed, const Tensor& kv, const PackedAttentionOptions& options,
                                                     const SequenceSplit& split) const {
  if (options.sparse) throw std::runtime_error("sparsemax and entmax15 need whole rows of scores: their tokens cannot be split over ranks");
  const bool self = to_ == To::self;
  const auto part = [&](const Tensor& rows, int64_t parts, int64_t which, const Tensor& weight, const Tensor& bias) {
    const Tensor heads = part_of(rows, parts, which, heads_).transpose(1, 2);  // [B, L, H, D]
    return (weight.defined() ? layer_norm_fork(heads, weight, bias, options.norm.eps).first : heads).transpose(1, 2);
  };
  const QkNorm& norm = options.norm;
  const Tensor& memory = self ? packed : kv;
  const int64_t parts = self ? 3 : 2, key = self ? 1 : 0;
  const Tensor q = part(packed, self ? 3 : 1, 0, norm.q_weight, norm.q_bias), k = part(memory, parts, key, norm.k_weight, norm.k_bias),
               v = part(memory, parts, key + 1, {}, {});
  const TokenShares &queries = split.own, &keys = self ? split.own : split.context;
  const int64_t D = width_ / heads_;
  const Travel travel = cheapest_travel(options.attention, options.statistics, q.size(0), heads_, heads_, D, D, queries, keys);
  return sequence_attention(q, k, v, options.attention, options.statistics, *split.ranks, queries, keys, travel);
}

// ---- decoding

Tensor Attention::project(const Tensor& x) const {
  const bool self = to_ == To::self;
  const Tensor packed = self ? hinge::linear(x, qkv_weight_, qkv_bias_) : hinge::linear(x, q_weight_, q_bias_);
  if (const QkNorm& norm = options_.norm; norm.defined()) {
    normalise_heads_(packed, self ? 3 : 1, 0, heads_, norm.q_weight, norm.q_bias, norm.eps);
    if (self) normalise_heads_(packed, 3, 1, heads_, norm.k_weight, norm.k_bias, norm.eps);
  }
  return packed;
}

Tensor Attention::keys_and_values(const Tensor& context) const {
  const Tensor kv = hinge::linear(context, kv_weight_, kv_bias_);
  if (const QkNorm& norm = options_.norm; norm.defined()) normalise_heads_(kv, 2, 0, heads_, norm.k_weight, norm.k_bias, norm.eps);
  return kv;
}

Tensor Attention::attend(const Tensor& x, const Tensor& q, const Tensor& kv, const Offsets& offsets, const Tensor& residual,
                         const SequenceSplit* split) const {
  const int64_t R = x.size(0);
  PackedAttentionOptions options = options_;
  options.attention.causal = false;  // all that is there is past
  if (split) {
    const Tensor out = read_by_all(part_of(q, 1, 0, heads_), part_of(kv, 2, 0, heads_), part_of(kv, 2, 1, heads_), options.attention,
                                   *split->ranks, offsets.q, split->context);
    return finish(x, out.transpose(1, 2).reshape({R, width_}), residual);
  }
  options.attention.q_offsets = offsets.q;
  options.attention.k_offsets = offsets.k;
  const Tensor queries = offsets.q.defined() ? q : q.unsqueeze(1);  // [R, width], or a batch of R sequences of one query
  const Tensor out =
      attention_without_gradient(part_of(queries, 1, 0, heads_), part_of(kv, 2, 0, heads_), part_of(kv, 2, 1, heads_), options);
  return finish(x, out.transpose(1, 2).reshape({R, width_}), residual);
}

// ---- views

std::vector<AttentionView> attentions_of(const std::vector<LayerView>& layers) {
  std::vector<AttentionView> views;
  for (const LayerView& layer : layers)
    if (layer.attention) views.push_back(*layer.attention);
  return views;
}

Tensor attention_weights(const AttentionView& view) {
  PackedAttentionOptions options = view.options;
  options.attention.dropout = 0;
  const int64_t Lk = view.k.size(2), D = view.q.size(3);
  const Tensor unit = at::eye(Lk, view.q.options());
  std::vector<Tensor> columns;
  for (int64_t first = 0; first < Lk; first += D) {
    const int64_t count = std::min(D, Lk - first);
    const Tensor values = at::constant_pad_nd(unit.narrow(1, first, count), {0, D - count}).expand_as(view.k);
    columns.push_back(attention_without_gradient(view.q, view.k, values, options).narrow(3, 0, count));
  }
  return at::cat(columns, 3);
}

}  // namespace hinge::nn
