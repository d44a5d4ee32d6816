#include "models/vit.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "hinge/ops/memory.h"
#include "models/sizes.h"
#include "support/require.h"

namespace hinge::models {
namespace {

using at::Tensor;
using support::require;

struct Variant {
  const char* name;
  int64_t width, depth, mlp_width, heads;
};
constexpr Variant kVariants[] = {
    {"Ti", 192, 12, 768, 3}, {"S", 384, 12, 1536, 6}, {"M", 512, 12, 2048, 8}, {"B", 768, 12, 3072, 12}, {"L", 1024, 24, 4096, 16},
};

}  // namespace

VitConfig resolved(VitConfig config) {
  const std::string name = config.variant.empty() ? "S/16" : config.variant;
  const size_t slash = name.find('/');
  const std::string digits = slash == std::string::npos ? "" : name.substr(slash + 1);
  const auto size =
      std::find_if(std::begin(kVariants), std::end(kVariants), [&](const Variant& one) { return name.substr(0, slash) == one.name; });
  require(
      size != std::end(kVariants) && !digits.empty() && digits.size() < 4 && digits.find_first_not_of("0123456789") == std::string::npos,
      "model.variant: '" + name + "' is not one of Ti, S, M, B, L with a patch size, such as S/16");
  const std::string named = config.variant.empty() ? "" : "model.variant " + name;
  fill_in_size("patch", config.patch, std::stoll(digits), named);
  fill_in_size("width", config.width, size->width, named);
  fill_in_size("depth", config.depth, size->depth, named);
  fill_in_size("mlp_width", config.mlp_width, size->mlp_width, named);
  fill_in_size("heads", config.heads, size->heads, named);
  const auto positive = [](const char* key, int64_t value) {
    require(value > 0, std::string("model.") + key + " must be at least 1, got " + std::to_string(value));
  };
  positive("image_size", config.image_size);
  positive("channels", config.channels);
  positive("classes", config.classes);
  require(config.image_size >= *config.patch,
          "model.patch " + std::to_string(*config.patch) + " is larger than model.image_size " + std::to_string(config.image_size));
  require(*config.width % *config.heads == 0,
          "model.width " + std::to_string(*config.width) + " is not a multiple of model.heads " + std::to_string(*config.heads));
  require(config.position != "sincos2d" || *config.width % 4 == 0, "model.position sincos2d needs a width that is a multiple of 4");
  require(!config.pool_first || config.pool == "gap", "model.pool_first belongs to pool = gap");
  require(std::isfinite(config.head_bias), "model.head_bias must be a finite number");
  if (config.rep_size == -1) config.rep_size = *config.width;
  require(config.rep_size >= 0, "model.rep_size must be -1, 0 or a width, got " + std::to_string(config.rep_size));
  for (const auto& [key, value] : {std::pair<const char*, double>{"dropout", config.dropout},
                                   {"drop_path", config.drop_path},
                                   {"attention.dropout", config.attention.dropout.value_or(0)}})
    require(value >= 0 && value < 1, std::string("model.") + key + " must be in [0, 1), got " + std::to_string(value));
  nn::attention_options(config.attention);
  return config;
}

Tensor sincos2d(int64_t side, int64_t width) {
  const int64_t n = width / 4;
  // Powers of the temperature from 1 down to 1 / 10000.
  const Tensor omega = at::pow(10000.0, -at::arange(n, at::kDouble) / static_cast<double>(std::max<int64_t>(n - 1, 1)));
  const Tensor steps = at::arange(side, at::kDouble);
  const Tensor y = steps.repeat_interleave(side).unsqueeze(1) * omega, x = steps.repeat({side}).unsqueeze(1) * omega;
  return at::cat({x.sin(), x.cos(), y.sin(), y.cos()}, 1).to(at::kFloat).unsqueeze(0);
}

Tensor resample_position(const Tensor& position, int64_t side) {
  const auto old_side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(position.size(1)))));
  require(position.dim() == 3 && old_side * old_side == position.size(1),
          "a position embedding of " + std::to_string(position.size(1)) + " tokens is no square and cannot be resampled");
  if (old_side == side) return position;
  const Tensor grid = position.view({1, old_side, old_side, -1}).permute({0, 3, 1, 2});
  return at::upsample_bilinear2d(grid, {side, side}, /*align_corners=*/true).permute({0, 2, 3, 1}).reshape({1, side * side, -1});
}

Vit::Vit(const VitConfig& given, uint64_t seed) : config_(resolved(given)) {
  const at::NoGradGuard guard;
  const nn::Builder builder{parameters_, at::make_generator<at::CPUGeneratorImpl>(seed)};
  const int64_t width = *config_.width;
  {
    nn::Parameters scratch;
    const Tensor flat =
        nn::Builder{scratch, builder.generator}.xavier("patch", width, config_.channels * *config_.patch * *config_.patch).detach();
    patch_weight_ =
        parameters_.add("patch_embed.proj.weight", flat.view({width, config_.channels, *config_.patch, *config_.patch}), /*decays=*/true);
  }
  patch_bias_ = builder.constant("patch_embed.proj.bias", {width}, 0);
  if (config_.position == "learn")
    position_ = builder.normal("pos_embed", {1, config_.tokens(), width}, 1 / std::sqrt(static_cast<double>(width)));
  else
    position_ = sincos2d(config_.image_size / *config_.patch, width);
  if (config_.pool == "tok") class_token_ = builder.constant("cls_token", {1, 1, width}, 0);
  for (int64_t i = 0; i < *config_.depth; ++i) {
    const double share = *config_.depth > 1 ? static_cast<double>(i) / static_cast<double>(*config_.depth - 1) : 1;
    const nn::BlockConfig block{width, *config_.mlp_width, *config_.heads, config_.dropout, config_.drop_path * share, config_.recompute};
    blocks_.push_back(std::make_unique<nn::EncoderBlock>(builder.under("blocks." + std::to_string(i)), block, config_.attention));
  }
  norm_weight_ = builder.constant("norm.weight", {width}, 1);
  norm_bias_ = builder.constant("norm.bias", {width}, 0);
  if (config_.pool == "map") {
    const nn::Builder pool = builder.under("attn_pool");
    map_.probe = pool.parameters.add(
        "attn_pool.latent", at::empty({1, 1, width}).uniform_(-1, 1, builder.generator) * std::sqrt(6.0 / static_cast<double>(width + 1)),
        false);
    map_.q_weight = pool.xavier("q.weight", width, width);
    map_.q_bias = pool.constant("q.bias", {width}, 0);
    nn::Parameters scratch;
    const nn::Builder parts{scratch, builder.generator};
    map_.kv_weight = parameters_.add("attn_pool.kv.weight",
                                     at::cat({parts.xavier("k", width, width).detach(), parts.xavier("v", width, width).detach()}), true);
    map_.kv_bias = pool.constant("kv.bias", {2 * width}, 0);
    map_.out_weight = pool.xavier("proj.weight", width, width);
    map_.out_bias = pool.constant("proj.bias", {width}, 0);
    map_.norm_weight = pool.constant("norm.weight", {width}, 1);
    map_.norm_bias = pool.constant("norm.bias", {width}, 0);
    map_.w1 = pool.xavier("mlp.fc1.weight", *config_.mlp_width, width);
    map_.b1 = pool.normal("mlp.fc1.bias", {*config_.mlp_width}, 1e-6);
    map_.w2 = pool.xavier("mlp.fc2.weight", width, *config_.mlp_width);
    map_.b2 = pool.normal("mlp.fc2.bias", {width}, 1e-6);
  }
  int64_t features = width;
  if (config_.rep_size > 0) {
    rep_weight_ = builder.xavier("pre_logits.fc.weight", config_.rep_size, width);
    rep_bias_ = builder.constant("pre_logits.fc.bias", {config_.rep_size}, 0);
    features = config_.rep_size;
  }
  head_weight_ = builder.constant("head.weight", {config_.classes, features}, 0, /*decays=*/true);
  head_bias_ = builder.constant("head.bias", {config_.classes}, config_.head_bias);
}

// The attention's fixed numbers only: no norms of queries and keys, no gate, nothing learned, no dropout.
Tensor Vit::attention_pool(const Tensor& x) const {
  const int64_t n = x.size(0), width = *config_.width, heads = *config_.heads, depth = width / heads;
  const Tensor q =
      hinge::linear(map_.probe, map_.q_weight, map_.q_bias).view({1, 1, heads, depth}).expand({n, 1, heads, depth}).transpose(1, 2);
  const Tensor kv = hinge::linear(x, map_.kv_weight, map_.kv_bias).view({n, x.size(1), 2, heads, depth}).permute({2, 0, 3, 1, 4});
  const Tensor read = attention(q, kv[0], kv[1], nn::attention_options(config_.attention)).transpose(1, 2).reshape({n, 1, width});
  const Tensor out = hinge::linear(read, map_.out_weight, map_.out_bias);
  const auto [normed, skip] = layer_norm_fork(out, map_.norm_weight, map_.norm_bias, nn::kNormEps);
  return read_global_memory(kernels::Activation::gelu, normed, map_.w1, map_.b1, map_.w2, map_.b2, skip).squeeze(1);
}

Tensor Vit::pooled(const Tensor& x) const {
  const auto norm = [&](const Tensor& tokens) { return layer_norm_fork(tokens, norm_weight_, norm_bias_, nn::kNormEps).first; };
  if (config_.pool_first) return norm(x.mean(1));
  if (config_.pool == "tok") return norm(x.select(1, 0));
  const Tensor normed = norm(x);
  return config_.pool == "map" ? attention_pool(normed) : normed.mean(1);
}

Tensor Vit::pre_logits(const Tensor& images, bool training, VitViews* views) const {
  require(images.dim() == 4 && images.size(1) == config_.image_size && images.size(2) == config_.image_size &&
              images.size(3) == config_.channels,
          "the model takes images of " + std::to_string(config_.image_size) + " x " + std::to_string(config_.image_size) + " pixels with " +
              std::to_string(config_.channels) + " channels");
  const int64_t n = images.size(0);
  Tensor x = hinge::linear(patches(images, *config_.patch), patch_weight_.view({*config_.width, -1}), patch_bias_,
                           position_.expand({n, config_.tokens(), *config_.width}));
  if (class_token_.defined()) x = at::cat({class_token_.expand({n, 1, *config_.width}), x}, 1);
  if (training && config_.dropout > 0) x = at::dropout(x, config_.dropout, true);
  if (views) views->embedding = x;
  for (const auto& block : blocks_) {
    nn::AttentionView* view = nullptr;
    if (views) view = &views->layers.emplace_back();
    x = block->forward(x, training, view);
    if (views) views->blocks.push_back(x);
  }
  Tensor features = pooled(x);
  if (rep_weight_.defined()) features = at::tanh(hinge::linear(features, rep_weight_, rep_bias_));
  if (views) views->pre_logits = features;
  return features;
}

Tensor Vit::forward(const Tensor& images, bool training, VitViews* views) const {
  return hinge::linear(pre_logits(images, training, views), head_weight_, head_bias_);
}

Tensor Vit::features(const Tensor& images) const { return pre_logits(images, /*training=*/false, nullptr); }

double Vit::flops() const {
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double L = d(config_.tokens() + (config_.pool == "tok")), W = d(*config_.width), M = d(*config_.mlp_width);
  double block = 2 * L * W * 4 * W + 4 * L * W * M + 4 * L * L * W;
  if (config_.attention.gate) block += 2 * L * W * W;
  const double features = config_.rep_size > 0 ? d(config_.rep_size) : W;
  double head = 2 * features * d(config_.classes) + (config_.rep_size > 0 ? 2 * W * features : 0);
  if (config_.pool == "map") head += 2 * L * W * 2 * W + 4 * L * W + 4 * W * W + 4 * W * M;
  return 2 * d(config_.tokens()) * W * d(config_.channels * *config_.patch * *config_.patch) + d(*config_.depth) * block + head;
}

}  // namespace hinge::models
