// The encoder-decoder model once more, in plain ATen calls, from its definition and one sentence at a time: what the fused model is
// compared with, values and gradients.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/seq2seq.h"

namespace hinge::models {

using NamedTensors = std::map<std::string, at::Tensor>;
using TokenRows = std::vector<std::vector<int64_t>>;

inline NamedTensors leaves_of(const nn::Parameters& parameters, at::ScalarType type) {
  NamedTensors leaves;
  for (const nn::Parameter& parameter : parameters.all())
    leaves[parameter.name] = parameter.value.detach().to(type).clone().requires_grad_(true);
  return leaves;
}

class PlainSeq2Seq {
 public:
  PlainSeq2Seq(const Seq2SeqConfig& config, const NamedTensors& parameters) : config_(resolved(config)), p_(parameters) {}

  // Logits [T, V] of all sentences, and the regulariser.
  std::pair<at::Tensor, at::Tensor> forward(const TokenRows& source, const TokenRows& target) {
    std::vector<at::Tensor> logits;
    regularisers_.clear();
    for (size_t s = 0; s < source.size(); ++s) logits.push_back(sentence(source[s], target[s]));
    // Each attention's mean over its rows and heads, then the mean over attentions.
    at::Tensor total;
    for (const auto& [name, rows] : regularisers_) {
      const at::Tensor mean = at::cat(rows, 1).mean();
      total = total.defined() ? total + mean : mean;
    }
    return {at::cat(logits), total.defined() ? total / static_cast<double>(regularisers_.size()) : total};
  }

 private:
  const at::Tensor& p(const std::string& name) const { return p_.at(name); }
  at::Tensor dense(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, p(name + ".weight").t()) + p(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-6).sqrt() * p(name + ".weight") + p(name + ".bias");
  }
  // [L, C] as [H, L, D]
  at::Tensor split(const at::Tensor& x) const { return x.unflatten(1, {*config_.heads, -1}).transpose(0, 1); }

  at::Tensor embed(const std::vector<int64_t>& tokens, const std::string& side) const {
    const auto length = static_cast<int64_t>(tokens.size());
    const at::Tensor weight = p(config_.tied ? "embedding.weight" : side + ".embedding.weight");
    const at::Tensor words = weight.index_select(0, at::tensor(tokens, at::kLong)) * std::sqrt(static_cast<double>(*config_.width));
    if (config_.position == nn::Position::learned) return words + p(side + ".positions.weight").narrow(0, 0, length);
    at::Tensor table = at::empty({length, *config_.width}, at::kFloat);  // as the model has it
    for (int64_t at = 0; at < length; ++at)
      for (int64_t c = 0; c < *config_.width; ++c) {
        const double angle =
            static_cast<double>(at) / std::pow(10000.0, static_cast<double>(c - c % 2) / static_cast<double>(*config_.width));
        table[at][c] = c % 2 == 0 ? std::sin(angle) : std::cos(angle);
      }
    return words + table.to(weight.scalar_type());
  }

  // The projection of the last dimension onto the simplex, by sorting; hidden entries are -inf.
  static at::Tensor simplex(const at::Tensor& s, bool entmax) {
    const at::Tensor x = entmax ? s / 2 : s, sorted = std::get<0>(x.sort(-1, true)),
                     finite = at::where(at::isinf(sorted), at::full_like(sorted, -1e3), sorted);
    const at::Tensor k = at::arange(1, s.size(-1) + 1, s.options().requires_grad(false));
    const at::Tensor mean = finite.cumsum(-1) / k, squares = finite.square().cumsum(-1) / k - mean.square();
    const at::Tensor tau = entmax ? mean - at::sqrt(((1 - k * squares) / k).clamp_min(1e-300)) : mean - 1 / k;
    at::Tensor size = (entmax ? (tau < finite).logical_and(k * squares <= 1) : tau < finite).to(at::kLong).cumprod(-1).sum(-1, true);
    const at::Tensor above = (x - tau.gather(-1, size - 1)).clamp_min(0);
    return entmax ? above.square() : above;
  }

  // Weights [H, Lq, Lk] of each preset from its own definition. `name` is where learned numbers are.
  at::Tensor weights(const at::Tensor& q, const at::Tensor& k, const nn::AttentionConfig& attention, const std::string& name, bool causal) {
    const int64_t lq = q.size(1), lk = k.size(1);
    at::Tensor s = at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
    const at::Tensor seen = causal ? at::ones({lq, lk}, at::kBool).tril() : at::ones({lq, lk}, at::kBool);
    const at::Tensor n = seen.sum(1, true).to(s.scalar_type());  // [Lq, 1]
    const auto hidden = [&](const at::Tensor& x) { return at::where(seen, x, at::full({}, -INFINITY, x.options())); };
    const auto is_learned = [](const std::string& sharing) { return !sharing.empty() && sharing != "none"; };
    const auto learned = [&](const char* what) {
      const std::string shared = std::string("attention.") + what;
      return p(p_.count(shared) ? shared : name + what).view({-1, 1, 1});
    };
    if (attention.preset == "softmax") return at::softmax(hidden(s), -1);
    if (attention.preset == "sparsemax" || attention.preset == "entmax15") return simplex(hidden(s), attention.preset == "entmax15");
    if (is_learned(attention.learn_bias)) s = s + learned("bias");
    at::Tensor w;
    double alpha = 1;
    if (attention.preset == "rela") w = at::relu(s), alpha = 0;
    if (attention.preset == "relu-vit") w = at::relu(s);
    if (attention.preset == "reluformer")
      w = at::relu(s) * (is_learned(attention.learn_gain) ? 1 : std::sqrt(2.0) / attention.gamma.value_or(1)), alpha = 0.5;
    if (attention.preset == "relu2") w = at::relu(s).square();
    if (attention.preset == "sigmoid") w = at::sigmoid(s - n.log()), alpha = 0;
    if (attention.preset == "silu") w = s * at::sigmoid(s);
    if (attention.preset == "linear") w = s;
    if (is_learned(attention.learn_gain)) w = w * learned("gain");
    w = is_learned(attention.learn_alpha) ? w * at::pow(n, -learned("alpha")) : w * at::pow(n, -alpha);
    w = at::where(seen, w, at::zeros({}, w.options()));
    if (attention.preset == "relu-vit" || attention.preset == "reluformer" || attention.preset == "relu2") {
      const at::Tensor sum = w.sum(-1), positive = at::where(w > 0, w, at::ones({}, w.options())), floor = sum.clamp_min(1e-3);
      const at::Tensor size = at::where(sum < 1e-3, -floor.log() + 1 - sum / 1e-3, floor.log().abs());
      const at::Tensor entropy = floor.log() - (w * positive.log()).sum(-1) / floor;
      regularisers_[name].push_back(size + (entropy - 0.7 * n.squeeze(1).log()).clamp_min(0));
    }
    return w;
  }

  at::Tensor attend(const at::Tensor& x, const at::Tensor& context, const nn::AttentionConfig& attention, const std::string& name,
                    bool causal) {
    std::vector<at::Tensor> parts;
    if (context.defined()) {
      parts = dense(context, name + "kv").chunk(2, 1);
      parts.insert(parts.begin(), dense(x, name + "q"));
    } else {
      parts = dense(x, name + "qkv").chunk(3, 1);
    }
    at::Tensor q = split(parts[0]), k = split(parts[1]);
    if (attention.qk_norm.value_or(false)) q = norm(q, name + "q_norm"), k = norm(k, name + "k_norm");
    at::Tensor out = at::matmul(weights(q, k, attention, name, causal), split(parts[2])).transpose(0, 1).flatten(1);
    if (attention.preset == "rela") out = out / (out.square().mean(-1, true) + 1e-6).sqrt() * p(name + "rms_norm.weight");
    if (attention.gate == "linear") out = out * dense(x, name + "gate");
    if (attention.gate == "sigmoid") out = out * at::sigmoid(dense(x, name + "gate"));
    return dense(out, name + "proj");
  }

  at::Tensor ffn(const at::Tensor& x, const std::string& name) const {
    const at::Tensor u = dense(x, name + "fc1");
    if (config_.ffn.activation == "softmax_norm") return norm(at::matmul(at::softmax(u, -1), p(name + "fc2.weight").t()), name + "norm");
    const at::Tensor hidden = config_.ffn.activation == "relu"   ? at::relu(u)
                              : config_.ffn.activation == "gelu" ? at::gelu(u)
                                                                 : at::softmax(u, -1);
    return dense(hidden, name + "fc2");
  }

  template <class Branch> at::Tensor add(const at::Tensor& x, const std::string& name, const Branch& branch) const {
    return config_.norm == nn::NormPlacement::pre ? x + branch(norm(x, name)) : norm(x + branch(x), name);
  }

  at::Tensor sentence(const std::vector<int64_t>& source, const std::vector<int64_t>& target) {
    at::Tensor encoded = embed(source, "encoder"), x = embed(target, "decoder");
    for (int64_t i = 0; i < config_.encoder_depth(); ++i) {
      const std::string layer = "encoder." + std::to_string(i) + ".";
      encoded = add(encoded, layer + "norm1",
                    [&](const at::Tensor& in) { return attend(in, {}, config_.encoder_attention(), layer + "attn.", false); });
      encoded = add(encoded, layer + "norm2", [&](const at::Tensor& in) { return ffn(in, layer + "mlp."); });
    }
    if (config_.norm == nn::NormPlacement::pre) encoded = norm(encoded, "encoder.norm");
    for (int64_t i = 0; i < config_.decoder_depth(); ++i) {
      const std::string layer = "decoder." + std::to_string(i) + ".";
      x = add(x, layer + "norm1", [&](const at::Tensor& in) { return attend(in, {}, config_.decoder_attention(), layer + "attn.", true); });
      x = add(x, layer + "norm2",
              [&](const at::Tensor& in) { return attend(in, encoded, config_.cross_attention(), layer + "cross_attn.", false); });
      x = add(x, layer + "norm3", [&](const at::Tensor& in) { return ffn(in, layer + "mlp."); });
    }
    if (config_.norm == nn::NormPlacement::pre) x = norm(x, "decoder.norm");
    return at::matmul(x, p(config_.tied ? "embedding.weight" : "output.weight").t());
  }

  Seq2SeqConfig config_;
  const NamedTensors& p_;
  std::map<std::string, std::vector<at::Tensor>> regularisers_;  // of each attention: [H, rows] per sentence
};

}  // namespace hinge::models
