// The vision transformer once more, in plain ATen calls and from its definition: what the fused model is compared with, values and
// gradients.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/vit.h"

namespace hinge::models {

using Named = std::map<std::string, at::Tensor>;

// Copies of the model's parameters in another type, as leaves.
inline Named leaves_of(const Vit& model, at::ScalarType type) {
  Named leaves;
  for (const nn::Parameter& parameter : model.parameters().all())
    leaves[parameter.name] = parameter.value.detach().to(type).clone().requires_grad_(true);
  return leaves;
}

// Numbers in the place of the initial ones, many of which are 0 or 1 and would hide mistakes.
inline void randomise(const Vit& model, double spread = 0.3) {
  const at::NoGradGuard guard;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    const bool norm = parameter.name.find("norm") != std::string::npos && parameter.name.find("weight") != std::string::npos;
    parameter.value.copy_(at::randn(parameter.value.sizes()) * spread + (norm ? 1.0 : 0.0));
  }
}

class PlainVit {
 public:
  PlainVit(const VitConfig& config, const Named& parameters) : config_(resolved(config)), p_(parameters) {}

  at::Tensor forward(const at::Tensor& images) const {
    const int64_t n = images.size(0), width = *config_.width, side = config_.image_size / *config_.patch;
    at::Tensor x = images.permute({0, 3, 1, 2});
    for (size_t i = 0; p_.count(stem(i) + "conv.weight"); ++i) {
      x = at::conv2d(x, p(stem(i) + "conv.weight"), {}, i == 0 ? 1 : 2, /*padding=*/1);
      x = at::relu(norm(x.permute({0, 2, 3, 1}), stem(i) + "norm")).permute({0, 3, 1, 2});
    }
    const int64_t pixels = p("patch_embed.proj.weight").size(2);
    x = at::conv2d(x, p("patch_embed.proj.weight"), p("patch_embed.proj.bias"), pixels);
    x = x.flatten(2).transpose(1, 2);  // [n, tokens, width]
    x = x + (config_.position == nn::Position::learned ? p("pos_embed") : sines(side).to(x.scalar_type()));
    if (config_.pool == Pool::tok) x = at::cat({p("cls_token").expand({n, 1, width}), x}, 1);
    for (int64_t i = 0; i < *config_.depth; ++i) {
      const std::string block = "blocks." + std::to_string(i) + ".";
      x = add(x, block + "norm1", [&](const at::Tensor& in) { return self_attention(in, config_.attention_of(i), block + "attn."); });
      x = add(x, block + "norm2", [&](const at::Tensor& in) { return mlp(in, block + "mlp."); });
    }
    x = config_.pool_first ? norm(x.mean(1), "norm") : pool(pre() ? norm(x, "norm") : x);
    if (config_.rep_size != 0) x = at::tanh(dense(x, "pre_logits.fc"));
    return dense(x, "head");
  }

 private:
  static std::string stem(size_t layer) { return "stem." + std::to_string(layer) + "."; }
  bool pre() const { return config_.norm == nn::NormPlacement::pre; }
  template <class Branch> at::Tensor add(const at::Tensor& x, const std::string& name, const Branch& branch) const {
    return pre() ? x + branch(norm(x, name)) : norm(x + branch(x), name);
  }
  const at::Tensor& p(const std::string& name) const { return p_.at(name); }
  at::Tensor dense(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, p(name + ".weight").t()) + p(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centred = x - x.mean(-1, true);
    const at::Tensor scaled = centred / (centred.square().mean(-1, true) + 1e-6).sqrt() * p(name + ".weight");
    return p_.count(name + ".bias") ? scaled + p(name + ".bias") : scaled;
  }
  at::Tensor mlp(const at::Tensor& x, const std::string& name) const {
    const at::Tensor u = dense(x, name + "fc1");
    if (config_.ffn.activation == "softmax_norm") return norm(at::matmul(at::softmax(u, -1), p(name + "fc2.weight").t()), name + "norm");
    if (config_.ffn.activation == "relu") return dense(at::relu(u), name + "fc2");
    return dense(at::gelu(u, config_.ffn.activation == "gelu_tanh" ? "tanh" : "none"), name + "fc2");
  }
  // [n, L, width] as [n, heads, L, depth]
  at::Tensor split(const at::Tensor& x) const { return x.unflatten(2, {*config_.heads, -1}).transpose(1, 2); }

  // The weights of the published systems, each from its own definition, and of points between them. `name` is where learned numbers are.
  at::Tensor weights(const at::Tensor& q, const at::Tensor& k, const nn::AttentionConfig& attention, const std::string& name) const {
    const auto keys = static_cast<double>(k.size(2));
    at::Tensor s = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
    const auto is_learned = [](const std::string& sharing) { return !sharing.empty() && sharing != "none"; };
    const auto learned = [&](const char* what) {
      const std::string shared = std::string("attention.") + what;
      return p(p_.count(shared) ? shared : name + what).view({-1, 1, 1});
    };
    if (is_learned(attention.learn_bias)) s = s + learned("bias");
    at::Tensor w;
    if (attention.preset == "softmax") return at::softmax(s, -1);
    // The preset's point of the family, then the parts that differ from it.
    std::string h = "relu";
    double alpha = 1, gain = 1, n = keys;
    if (attention.preset == "reluformer") gain = std::sqrt(2.0), alpha = 0.5;
    if (attention.preset == "sigmoid") h = "sigmoid", s = s - std::log(keys), alpha = 0;
    if (attention.preset == "relu2" || attention.preset == "silu") h = attention.preset;
    if (attention.preset == "linear") h = "identity";
    if (attention.preset == "rela") alpha = 0;
    if (!attention.h.empty()) h = attention.h;
    if (attention.length == "none") n = 1;
    if (attention.length == "fixed") n = attention.length_n.value_or(1);
    alpha = attention.alpha.value_or(alpha), gain = attention.gain.value_or(gain);
    if (attention.bias && !is_learned(attention.learn_bias)) s = s + *attention.bias;
    if (h == "relu") w = at::relu(s);
    if (h == "relu2") w = at::relu(s).square();
    if (h == "relu6") w = at::clamp(s, 0, 6);
    if (h == "gelu") w = at::gelu(s);
    if (h == "gelu_tanh") w = at::gelu(s, "tanh");
    if (h == "softplus") w = at::softplus(s);
    if (h == "identity") w = s;
    if (h == "sigmoid") w = at::sigmoid(s);
    if (h == "silu") w = s * at::sigmoid(s);
    w = is_learned(attention.learn_gain) ? w * learned("gain") : w * gain;
    return is_learned(attention.learn_alpha) ? w * at::pow(at::scalar_tensor(n, s.options()), -learned("alpha")) : w * std::pow(n, -alpha);
  }

  at::Tensor self_attention(const at::Tensor& x, const nn::AttentionConfig& attention, const std::string& name) const {
    const std::vector<at::Tensor> qkv = dense(x, name + "qkv").chunk(3, 2);
    at::Tensor q = split(qkv[0]), k = split(qkv[1]);
    if (attention.qk_norm.value_or(false)) q = norm(q, name + "q_norm"), k = norm(k, name + "k_norm");
    at::Tensor out = at::matmul(weights(q, k, attention, name), split(qkv[2])).transpose(1, 2).flatten(2);
    if (attention.preset == "rela") out = out / (out.square().mean(-1, true) + 1e-6).sqrt() * p(name + "rms_norm.weight");
    if (attention.gate == "linear") out = out * dense(x, name + "gate");
    if (attention.gate == "sigmoid") out = out * at::sigmoid(dense(x, name + "gate"));
    return dense(out, name + "proj");
  }

  at::Tensor pool(const at::Tensor& x) const {
    if (config_.pool == Pool::gap) return x.mean(1);
    if (config_.pool == Pool::tok) return x.select(1, 0);
    const at::Tensor q = split(dense(p("attn_pool.latent").expand({x.size(0), 1, *config_.width}), "attn_pool.q"));
    const std::vector<at::Tensor> kv = dense(x, "attn_pool.kv").chunk(2, 2);
    const at::Tensor pooled =
        dense(at::matmul(weights(q, split(kv[0]), config_.attention, ""), split(kv[1])).transpose(1, 2).flatten(2), "attn_pool.proj");
    return (pooled + mlp(norm(pooled, "attn_pool.norm"), "attn_pool.mlp.")).squeeze(1);
  }

 public:
  // sin x, cos x, sin y, cos y of width / 4 frequencies each, row by row.
  at::Tensor sines(int64_t side) const {
    const int64_t quarter = *config_.width / 4;
    at::Tensor table = at::empty({1, side * side, *config_.width}, at::kDouble);
    auto cell = table.accessor<double, 3>();
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        for (int64_t f = 0; f < quarter; ++f) {
          const double omega = 1 / std::pow(10000.0, static_cast<double>(f) / static_cast<double>(quarter - 1));
          const int64_t token = y * side + x;
          cell[0][token][f] = std::sin(static_cast<double>(x) * omega);
          cell[0][token][quarter + f] = std::cos(static_cast<double>(x) * omega);
          cell[0][token][2 * quarter + f] = std::sin(static_cast<double>(y) * omega);
          cell[0][token][3 * quarter + f] = std::cos(static_cast<double>(y) * omega);
        }
    return table;
  }

 private:
  VitConfig config_;
  const Named& p_;
};

// float32 results against float64 ones of the same formulas: the fused model may be off by a small factor of what plain float32 is off by.
// The second term is for results that plain float32 happens to hit: some roundings of the largest number around.
inline void expect_as_close(const at::Tensor& fused, const at::Tensor& plain, const at::Tensor& exact, double scale,
                            const std::string& what) {
  constexpr double eps = 0x1p-24;
  const auto error = [&](const at::Tensor& values) { return (values.to(at::kDouble) - exact).abs().max().item<double>(); };
  EXPECT_LE(error(fused), 3 * error(plain) + 16 * eps * scale) << what << ": plain float32 is off by " << error(plain);
}

}  // namespace hinge::models
