#include "nn/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "hinge/ops/sequence.h"

namespace hinge::nn {
namespace {

[[noreturn]] void unknown(const char* what, const std::string& given, const std::vector<std::string>& known) {
  std::string text = std::string("attention.") + what + ": '" + given + "' is not known; known are";
  for (const std::string& word : known) text += " " + word;
  throw std::runtime_error(text);
}

}  // namespace

AttentionOptions attention_options(const AttentionConfig& config) {
  const std::vector<std::string> presets = preset_names();
  if (std::find(presets.begin(), presets.end(), config.preset) == presets.end()) unknown("preset", config.preset, presets);
  const double gamma = config.gamma.value_or(1);
  if (gamma != 1 && config.preset != "reluformer") throw std::runtime_error("attention.gamma belongs to the preset reluformer");
  for (const auto& [key, value] : {std::pair("gamma", gamma), std::pair("length_n", config.length_n)})
    if (!(value > 0) || !std::isfinite(value))
      throw std::runtime_error(std::string("attention.") + key + " must be positive, got " + std::to_string(value));
  for (const auto& [key, value] : {std::pair("alpha", config.alpha), std::pair("gain", config.gain), std::pair("bias", config.bias)})
    if (value && !std::isfinite(*value))
      throw std::runtime_error(std::string("attention.") + key + " must be a finite number, got " + std::to_string(*value));
  AttentionOptions options = preset(config.preset, gamma);
  if (!config.h.empty()) {
    const auto h = kernels::parse_activation(config.h);
    if (!h) unknown("h", config.h, {kernels::kActivationNames.begin(), kernels::kActivationNames.end()});
    options.h = *h;
  }
  if (!config.length.empty()) {
    const auto rule = parse_length_rule(config.length);
    if (!rule) unknown("length", config.length, length_rule_names());
    options.length_rule = *rule;
  }
  if (config.length_n != 1 && options.length_rule != kernels::LengthRule::fixed)
    throw std::runtime_error("attention.length_n belongs to length = fixed");
  options.length_n = config.length_n;
  if (options.h == kernels::Activation::softmax) {
    if (!config.length.empty() || config.alpha || config.gain || config.bias || config.learn_alpha || config.learn_gain ||
        config.learn_bias)
      throw std::runtime_error("attention: softmax has no length rule, alpha, gain or bias");
    options.alpha = options.gain = options.bias = PerHead();
    options.length_rule = kernels::LengthRule::keys;
    options.bias_log_n = false;
    return options;
  }
  if (config.alpha) options.alpha = *config.alpha;
  if (config.gain) options.gain = *config.gain;
  if (config.bias) options.bias = *config.bias;
  return options;
}

at::Tensor packed_projections(const Builder& builder, const std::string& name, int64_t parts, int64_t width) {
  Parameters scratch;
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < parts; ++i) all.push_back(Builder{scratch, builder.generator}.xavier(std::to_string(i), width, width).detach());
  return builder.parameters.add(builder.prefix + name, at::cat(all), /*decays=*/true);
}

AttentionParameters::AttentionParameters(const Builder& builder, const AttentionConfig& config, AttentionOptions& options, int64_t width,
                                         int64_t heads) {
  if (width % heads != 0)
    throw std::runtime_error("model.width " + std::to_string(width) + " is not a multiple of model.heads " + std::to_string(heads));
  const int64_t depth = width / heads;
  if (config.qk_norm) {
    norm.q_weight = builder.constant("q_norm.weight", {depth}, 1);
    norm.q_bias = builder.constant("q_norm.bias", {depth}, 0);
    norm.k_weight = builder.constant("k_norm.weight", {depth}, 1);
    norm.k_bias = builder.constant("k_norm.bias", {depth}, 0);
  }
  const auto learned = [&](const char* name, PerHead& option, double otherwise) {
    const double start = option.values.defined() ? option.values.item<double>() : otherwise;
    option = builder.constant(name, {heads}, start);
  };
  if (config.learn_alpha) learned("alpha", options.alpha, 1);
  if (config.learn_gain) learned("gain", options.gain, 1);
  if (config.learn_bias) learned("bias", options.bias, 0);
  if (config.gate) {
    gate_weight = builder.xavier("gate.weight", width, width);
    gate_bias = builder.constant("gate.bias", {width}, 0);
  }
  if (config.preset == "rela") rms_weight = builder.constant("rms_norm.weight", {width}, 1);
  out_weight = builder.xavier("proj.weight", width, width);
  out_bias = builder.constant("proj.bias", {width}, 0);
}

at::Tensor AttentionParameters::finish(const at::Tensor& x, const at::Tensor& read, const at::Tensor& residual) const {
  at::Tensor result = rms_weight.defined() ? rms_norm(read, rms_weight, kNormEps) : read;
  if (gate_weight.defined()) result = result * hinge::linear(x, gate_weight, gate_bias);
  return hinge::linear(result, out_weight, out_bias, residual);
}

SelfAttention::SelfAttention(const Builder& builder, const AttentionConfig& config, int64_t width, int64_t heads)
    : config_(config),
      width_(width),
      heads_(heads),
      options_(attention_options(config)),
      qkv_weight_(packed_projections(builder, "qkv.weight", 3, width)),
      qkv_bias_(builder.constant("qkv.bias", {3 * width}, 0)),
      parameters_(builder, config, options_, width, heads) {}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& residual, bool training, AttentionView* view) const {
  AttentionOptions options = options_;
  if (training) options.dropout = config_.dropout.value_or(0);
  const at::Tensor qkv = hinge::linear(x, qkv_weight_, qkv_bias_);
  if (view) {
    const int64_t B = x.size(0), L = x.size(1);
    const at::Tensor parts = qkv.view({B, L, 3, heads_, width_ / heads_}).permute({2, 0, 3, 1, 4});
    *view = {parts[0], parts[1], parts[2], options};
    if (const QkNorm& norm = parameters_.norm; norm.q_weight.defined()) {
      view->q = layer_norm_fork(view->q, norm.q_weight, norm.q_bias, norm.eps).first;
      view->k = layer_norm_fork(view->k, norm.k_weight, norm.k_bias, norm.eps).first;
    }
  }
  return parameters_.finish(x, self_attention(qkv, heads_, options, parameters_.norm), residual);
}

at::Tensor attention_weights(const AttentionView& view, const ReadValues& read) {
  const int64_t Lk = view.k.size(2), D = view.q.size(3);
  const at::Tensor unit = at::eye(Lk, view.q.options());
  std::vector<at::Tensor> columns;
  for (int64_t first = 0; first < Lk; first += D) {
    const int64_t count = std::min(D, Lk - first);
    columns.push_back(read(at::constant_pad_nd(unit.narrow(1, first, count), {0, D - count}).expand_as(view.k)).narrow(3, 0, count));
  }
  return at::cat(columns, 3);
}

at::Tensor attention_weights(const AttentionView& view) {
  return attention_weights(view, [&](const at::Tensor& values) { return attention(view.q, view.k, values, view.options); });
}

}  // namespace hinge::nn
