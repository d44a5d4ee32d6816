#include "nn/memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "hinge/ops/sequence.h"

namespace hinge::nn {
namespace {

using at::Tensor;
using kernels::Activation;

constexpr const char* kSoftmaxNorm = "softmax_norm";
constexpr const char* kSparse[] = {"sparsemax", "entmax15", "rela"};

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + word;
  return text;
}

// [L, parts H D] as [1, H, L, D].
Tensor part(const Tensor& packed, int64_t parts, int64_t which, int64_t heads) {
  return packed.view({packed.size(0), parts, heads, -1}).select(1, which).transpose(0, 1).unsqueeze(0);
}

}  // namespace

int64_t Noise::next() {
  // splitmix64
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return static_cast<int64_t>((x ^ (x >> 31)) & 0x7FFFFFFFFFFFFFFFU);
}

Tensor memory_weights(const MemoryView& view) {
  if (!view.local) throw std::runtime_error(view.name + " is a global memory: its weights are the scores of its view");
  const AttentionView& attention = view.attention;
  ReadOptions options;
  options.read = view.read;
  options.attention = attention.options;
  options.attention.dropout = 0;
  return attention_weights(attention,
                           [&](const Tensor& values) { return read_without_gradient(attention.q, attention.k, values, options); });
}

// ---- local memory

std::vector<std::string> local_memory_presets() {
  std::vector<std::string> names = preset_names();
  names.insert(names.end(), std::begin(kSparse), std::end(kSparse));
  return names;
}

ReadOptions read_options(const LocalMemoryConfig& config, const std::string& key, bool causal) {
  const auto require = [&](bool holds, const std::string& message) {
    if (!holds) throw std::runtime_error(key + message);
  };
  const std::vector<std::string> presets = local_memory_presets();
  require(std::find(presets.begin(), presets.end(), config.preset) != presets.end(),
          ".preset: '" + config.preset + "' is not known; known are" + listed(presets));
  const double dropout = config.dropout.value_or(0);
  require(dropout >= 0 && dropout < 1, ".dropout must be in [0, 1), got " + std::to_string(dropout));
  ReadOptions options;
  const bool sparse = std::find(std::begin(kSparse), std::end(kSparse), config.preset) != std::end(kSparse);
  if (sparse) {
    require(config.h.empty() && !config.alpha && !config.gain && !config.bias && config.length.empty() && config.length_n == 1 &&
                config.gamma.value_or(1) == 1 && !config.learn_alpha && !config.learn_gain && !config.learn_bias,
            ": the preset " + config.preset + " takes no h, alpha, gain, bias, length, length_n or gamma");
    if (config.preset == "sparsemax") options.read = Read::sparsemax;
    if (config.preset == "entmax15") options.read = Read::entmax15;
    options.attention.length_rule = kernels::LengthRule::none;
  } else {
    require(!causal || config.length != "keys",
            ".length: a decoder does not know how many keys there will be; take visible, fixed or none instead of keys");
    try {
      options.attention = attention_options(config);
    } catch (const std::exception& error) {
      throw std::runtime_error(key + ": " + error.what());
    }
    // The two differ only where a row does not see all of its keys, which is where `keys` would not be known while decoding.
    if (options.attention.length_rule == kernels::LengthRule::keys && options.attention.h != Activation::softmax)
      options.attention.length_rule = kernels::LengthRule::visible;
  }
  options.attention.causal = causal;
  return options;
}

LocalMemory::LocalMemory(const Builder& builder, const LocalMemoryConfig& config, const std::string& key, int64_t width, int64_t heads,
                         Of of, bool causal)
    : config_(config), width_(width), heads_(heads), of_(of), options_(read_options(config, key, causal)) {
  if (of == Of::readers) {
    qkv_weight_ = packed_projections(builder, "qkv.weight", 3, width);
    qkv_bias_ = builder.constant("qkv.bias", {3 * width}, 0);
  } else {
    q_weight_ = builder.xavier("q.weight", width, width);
    q_bias_ = builder.constant("q.bias", {width}, 0);
    kv_weight_ = packed_projections(builder, "kv.weight", 2, width);
    kv_bias_ = builder.constant("kv.bias", {2 * width}, 0);
  }
  parameters_.emplace(builder, config, options_.attention, width, heads);
}

bool LocalMemory::regularised() const {
  const Activation h = options_.attention.h;
  return options_.read == Read::engine && !parameters_->rms_weight.defined() &&
         (h == Activation::relu || h == Activation::relu2 || h == Activation::relu6);
}

Tensor LocalMemory::project(const Tensor& x) const {
  const QkNorm& norm = parameters_->norm;
  if (of_ == Of::others) {
    const Tensor q = hinge::linear(x, q_weight_, q_bias_);
    return norm.q_weight.defined() ? normalise_heads(q, 1, 0, heads_, norm.q_weight, norm.q_bias, norm.eps) : q;
  }
  const Tensor qkv = hinge::linear(x, qkv_weight_, qkv_bias_);
  if (!norm.q_weight.defined()) return qkv;
  return normalise_heads(normalise_heads(qkv, 3, 0, heads_, norm.q_weight, norm.q_bias, norm.eps), 3, 1, heads_, norm.k_weight, norm.k_bias,
                         norm.eps);
}

Tensor LocalMemory::slots(const Tensor& others) const {
  const QkNorm& norm = parameters_->norm;
  const Tensor kv = hinge::linear(others, kv_weight_, kv_bias_);
  return norm.k_weight.defined() ? normalise_heads(kv, 2, 0, heads_, norm.k_weight, norm.k_bias, norm.eps) : kv;
}

Tensor LocalMemory::read(const Tensor& x, const Tensor& others, const Rows& rows, const Forward& forward) const {
  ReadOptions options = options_;
  options.attention.q_offsets = rows.readers;
  options.attention.k_offsets = rows.slots;
  if (forward.noise && config_.dropout.value_or(0) > 0) {
    options.attention.dropout = *config_.dropout;
    options.attention.seed = at::full({1}, forward.noise->next(), at::kLong);
  }
  options.statistics = forward.regulariser && regularised();
  const Tensor packed = project(x), kv = of_ == Of::others ? slots(others) : Tensor();
  if (forward.view) {
    forward.view->local = true;
    forward.view->read = options.read;
    forward.view->attention =
        kv.defined() ? AttentionView{part(packed, 1, 0, heads_), part(kv, 2, 0, heads_), part(kv, 2, 1, heads_), options.attention}
                     : AttentionView{part(packed, 3, 0, heads_), part(packed, 3, 1, heads_), part(packed, 3, 2, heads_), options.attention};
  }
  const MemoryRead got = kv.defined() ? read_memory(packed, kv, heads_, options) : read_memory(packed, heads_, options);
  if (options.statistics) {
    Regulariser& total = *forward.regulariser;
    const Tensor own =
        reluformer_regulariser(got.weight_sum, got.weight_log, visible_slots(rows.readers, rows.slots, options.attention.causal));
    total.sum = total.sum.defined() ? total.sum + own : own;
    ++total.memories;
  }
  return parameters_->finish(x, got.out);
}

Tensor LocalMemory::read_slots(const Tensor& x, const Tensor& q, const Tensor& slots, const Rows& rows) const {
  const int64_t R = x.size(0), depth = width_ / heads_;
  ReadOptions options = options_;
  options.attention.causal = false;  // all that is there is past
  Tensor out;
  if (rows.readers.defined()) {
    options.attention.q_offsets = rows.readers;
    options.attention.k_offsets = rows.slots;
    const Tensor packed = slots.view({slots.size(0), 2, heads_, depth});
    const auto by_head = [](const Tensor& t) { return t.transpose(0, 1).unsqueeze(0); };
    out = read_without_gradient(by_head(q.view({R, heads_, depth})), by_head(packed.select(1, 0)), by_head(packed.select(1, 1)), options);
    out = out.transpose(1, 2).reshape({R, width_});
  } else {
    const Tensor packed = slots.view({R, slots.size(1), 2, heads_, depth});
    out = read_without_gradient(q.view({R, 1, heads_, depth}).transpose(1, 2), packed.select(2, 0).transpose(1, 2),
                                packed.select(2, 1).transpose(1, 2), options);
    out = out.transpose(1, 2).reshape({R, width_});
  }
  return parameters_->finish(x, out);
}

// ---- global memory

std::vector<std::string> global_memory_names() {
  std::vector<std::string> names(kernels::kActivationNames.begin(), kernels::kActivationNames.end());
  names.emplace_back(kSoftmaxNorm);
  return names;
}

kernels::Activation parse_global_memory(const std::string& phi) {
  const auto activation = kernels::parse_activation(phi == kSoftmaxNorm ? "softmax" : phi);
  if (!activation) throw std::runtime_error("model.ffn: '" + phi + "' is not known; known are" + listed(global_memory_names()));
  return *activation;
}

GlobalMemory::GlobalMemory(const Builder& builder, const std::string& phi, int64_t width, int64_t slots, double dropout)
    : activation_(parse_global_memory(phi)), dropout_(dropout) {
  keys_ = builder.xavier("keys.weight", slots, width);
  key_bias_ = builder.constant("keys.bias", {slots}, 0);
  values_ = builder.xavier("values.weight", width, slots);
  if (phi == kSoftmaxNorm) {
    // The norm's bias takes the place of the values'.
    norm_weight_ = builder.constant("norm.weight", {width}, 1);
    norm_bias_ = builder.constant("norm.bias", {width}, 0);
  } else {
    value_bias_ = builder.constant("values.bias", {width}, 0);
  }
}

Tensor GlobalMemory::read(const Tensor& x, const Forward& forward) const {
  const bool drops = forward.noise && dropout_ > 0;
  if (forward.view) {
    const at::NoGradGuard guard;
    forward.view->scores = read_global_memory(activation_, x, keys_, key_bias_, at::eye(keys_.size(0), x.options()), {});
    forward.view->values = values_.t();
  }
  const Tensor y = read_global_memory(activation_, x, keys_, key_bias_, values_, value_bias_, {}, drops ? dropout_ : 0,
                                      drops ? forward.noise->next() : 0);
  return norm_weight_.defined() ? layer_norm_fork(y, norm_weight_, norm_bias_, kNormEps).first : y;
}

}  // namespace hinge::nn
