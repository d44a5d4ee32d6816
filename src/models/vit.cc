#include "models/vit.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <tuple>

#include "hinge/ops/dense.h"
#include "models/sizes.h"
#include "support/config.h"
#include "support/require.h"

namespace hinge::models {
namespace {

using at::Tensor;
using support::require;

constexpr double kBiasDeviation = 1e-6;  // of the feed-forward layers' biases at the start, as in big_vision

constexpr const char* kFirstKey = "model.attention.first";

struct Size {
  const char* name;
  int64_t width, depth, ffn_width, heads;
};
constexpr Size kSizes[] = {
    {"Ti", 192, 12, 768, 3}, {"S", 384, 12, 1536, 6}, {"M", 512, 12, 2048, 8}, {"B", 768, 12, 3072, 12}, {"L", 1024, 24, 4096, 16},
};

}  // namespace

VitConfig resolved(VitConfig config) {
  const std::string name = config.size.empty() ? "S/16" : config.size;
  const size_t slash = name.find('/');
  const std::string digits = slash == std::string::npos ? "" : name.substr(slash + 1);
  const auto size = std::find_if(std::begin(kSizes), std::end(kSizes), [&](const Size& one) { return name.substr(0, slash) == one.name; });
  require(size != std::end(kSizes) && !digits.empty() && digits.size() < 4 && digits.find_first_not_of("0123456789") == std::string::npos,
          "model.size: '" + name + "' is not one of Ti, S, M, B, L with a patch size, such as S/16");
  const std::string named = config.size.empty() ? "" : "model.size " + name;
  fill_in_size("patch", config.patch, std::stoll(digits), named);
  fill_in_size("width", config.width, size->width, named);
  fill_in_size("depth", config.depth, size->depth, named);
  fill_in_size("heads", config.heads, size->heads, named);
  fill_in_size("ffn.width", config.ffn.width, size->ffn_width, "");  // may differ from the size's, in every model
  const auto positive = [](const char* key, int64_t value) {
    require(value > 0, fmt::format("model.{} must be at least 1, got {}", key, value));
  };
  positive("image_size", config.image_size);
  positive("channels", config.channels);
  positive("classes", config.classes);
  require(config.image_size >= *config.patch,
          fmt::format("model.patch {} is larger than model.image_size {}", *config.patch, config.image_size));
  require(config.stem != Stem::conv || std::has_single_bit(static_cast<uint64_t>(*config.patch)),
          fmt::format("model.stem conv halves an image again and again: model.patch must be a power of two, got {}", *config.patch));
  require(
      config.stem != Stem::conv || config.image_size % *config.patch == 0,
      fmt::format("model.stem conv needs an image_size that is a multiple of the patch, got {} and {}", config.image_size, *config.patch));
  require(*config.width % *config.heads == 0,
          fmt::format("model.width {} is not a multiple of model.heads {}", *config.width, *config.heads));
  require(config.position != nn::Position::sinusoidal || *config.width % 4 == 0,
          fmt::format("model.position sinusoidal needs a width that is a multiple of 4, got {}", *config.width));
  require(!config.pool_first || (config.pool == Pool::gap && config.norm == nn::NormPlacement::pre),
          "model.pool_first belongs to pool = gap and norm = pre: it says on which side of the last norm the mean is taken");
  require(std::isfinite(config.head_bias), "model.head_bias must be a finite number");
  if (config.rep_size == -1) config.rep_size = *config.width;
  require(config.rep_size >= 0, fmt::format("model.rep_size must be -1, 0 or a width, got {}", config.rep_size));
  for (const auto& [key, value] : {std::pair<const char*, double>{"dropout", config.dropout}, {"drop_path", config.drop_path}})
    require(value >= 0 && value < 1, fmt::format("model.{} must be in [0, 1), got {}", key, value));
  check(config.ffn, "model.ffn");
  nn::attention_options(config.attention, "model.attention");
  const FirstBlocksAttention& first = config.attention.first;
  require(first.blocks >= 0 && first.blocks <= *config.depth,
          fmt::format("model.attention.first.blocks must be from 0 to model.depth, which is {}, got {}", *config.depth, first.blocks));
  if (first.blocks > 0) {
    nn::attention_options(config.attention_of(0), kFirstKey);
  } else if (const auto given = support::config_differences(FirstBlocksAttention(), first); !given.empty()) {
    throw std::runtime_error(fmt::format("{0}.{1} is given, but {0}.blocks is 0: say for how many blocks", kFirstKey, given[0].key));
  }
  return config;
}

void require_splittable(const VitConfig& config, int64_t ranks) {
  if (ranks == 1) return;
  for (int64_t i = 0; i < *config.depth; ++i) {
    const std::string key = i < config.attention.first.blocks ? "attention.first" : "attention";
    nn::require_splittable(config.attention_of(i), "model." + key);
  }
  require(config.all_tokens() >= ranks,
          fmt::format("an image has {} tokens, too few for train.sequence_parallel {}", config.all_tokens(), ranks));
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
  if (config_.stem == Stem::conv) stem_.emplace(builder.under("stem"), config_.stem_layers(), config_.init);
  const int64_t channels = stem_ ? width : config_.channels, pixels = stem_ ? 1 : *config_.patch;  // of what is embedded
  patch_weight_ = builder.kernel("patch_embed.proj.weight", {width, channels, pixels, pixels}, config_.init);
  patch_bias_ = builder.constant("patch_embed.proj.bias", {width}, 0);
  if (config_.position == nn::Position::learned)
    position_ = builder.normal("pos_embed", {1, config_.tokens(), width}, 1 / std::sqrt(static_cast<double>(width)));
  else
    position_ = nn::sinusoidal_positions_2d(config_.image_size / *config_.patch, width);
  if (config_.pool == Pool::tok) class_token_ = builder.constant("cls_token", {1, 1, width}, 0);
  nn::BlockConfig block;
  block.width = width, block.heads = *config_.heads;
  block.ffn = config_.ffn, block.norm = config_.norm, block.dropout = config_.dropout, block.bias_deviation = kBiasDeviation;
  block.gradient_checkpointing = config_.gradient_checkpointing;
  std::vector<nn::BlockConfig> blocks;
  for (int64_t i = 0; i < *config_.depth; ++i) {
    block.drop_path = nn::drop_path_of(config_.drop_path, i, *config_.depth);
    block.attention = config_.attention_of(i), block.attention_key = i < config_.attention.first.blocks ? kFirstKey : "model.attention";
    blocks.push_back(block);
  }
  encoder_.emplace(builder, "blocks", blocks);
  if (config_.norm == nn::NormPlacement::pre) norm_ = nn::Norm(builder, "norm", width);
  if (config_.pool == Pool::map) {
    const nn::Builder pool = builder.under("attn_pool");
    nn::AttentionConfig attention = config_.attention;  // its fixed numbers only
    attention.qk_norm = false;
    attention.gate = attention.learn_alpha = attention.learn_gain = attention.learn_bias = "none";
    attention.dropout.reset();
    const double limit = std::sqrt(6.0 / static_cast<double>(width + 1));
    const Tensor probe = parameters_.add("attn_pool.latent", at::empty({1, 1, width}).uniform_(-1, 1, builder.generator) * limit, false);
    map_.emplace(MapPool{probe,
                         nn::Attention(pool, attention, "model.attention", width, *config_.heads, nn::Attention::To::context),
                         nn::Norm(pool, "norm", width),
                         {pool.under("mlp"), config_.ffn, width, kBiasDeviation}});
  }
  int64_t features = width;
  if (config_.rep_size > 0) {
    rep_weight_ = builder.kernel("pre_logits.fc.weight", {config_.rep_size, width}, config_.init);
    rep_bias_ = builder.constant("pre_logits.fc.bias", {config_.rep_size}, 0);
    features = config_.rep_size;
  }
  head_weight_ = builder.constant("head.weight", {config_.classes, features}, 0, /*decays=*/true);
  head_bias_ = builder.constant("head.bias", {config_.classes}, config_.head_bias);
}

Tensor Vit::pooled(const Tensor& x, const nn::SequenceSplit* split) const {
  const auto normed = [&](const Tensor& tokens) { return norm_.weight.defined() ? norm_(tokens) : tokens; };
  const auto mean = [&](const Tensor& tokens) {
    return split ? nn::sum_over_ranks(tokens.sum(1), *split->ranks) / config_.all_tokens() : tokens.mean(1);
  };
  if (config_.pool_first) return normed(mean(x));
  switch (config_.pool) {
    case Pool::gap: return mean(normed(x));
    case Pool::tok:  // of the others, the sum of no tokens
      return normed(split ? nn::sum_over_ranks(x.narrow(1, 0, split->ranks->rank() == 0 ? 1 : 0).sum(1), *split->ranks) : x.select(1, 0));
    case Pool::map: break;
  }
  nn::SequenceSplit probes;  // every rank has one
  if (split) probes = {split->ranks, {std::vector<int64_t>(static_cast<size_t>(split->ranks->count()), 1), {}}, split->own};
  const nn::Forward forward{nullptr, nullptr, nullptr, split ? &probes : nullptr};
  const Tensor out = map_->attention.forward(map_->probe.expand({x.size(0), 1, x.size(2)}), normed(x), {}, forward);
  const auto [input, residual] = layer_norm_fork(out, map_->norm.weight, map_->norm.bias, nn::kNormEps);
  return map_->ffn.forward(input, {}, residual).squeeze(1);
}

Tensor Vit::pre_logits(const Tensor& images, const std::optional<uint64_t>& seed, VitViews* views, nn::SequenceRanks* ranks) const {
  if (images.dim() != 4 || images.size(1) != config_.image_size || images.size(2) != config_.image_size ||
      images.size(3) != config_.channels)
    throw std::runtime_error(
        fmt::format("the model takes images of {0} x {0} pixels with {1} channels", config_.image_size, config_.channels));
  const int64_t n = images.size(0);
  std::optional<nn::SequenceSplit> split;
  // This rank's patches; the class token is the first token.
  const int64_t class_tokens = config_.all_tokens() - config_.tokens();
  int64_t first = 0, end = config_.tokens();
  bool has_class_token = class_tokens > 0;
  if (ranks) {
    split = nn::SequenceSplit{ranks, nn::TokenShares::of_batch(config_.all_tokens(), ranks->count()), {}};
    std::tie(first, end) = nn::share_of(config_.all_tokens(), ranks->rank(), ranks->count());
    const Tensor numbers = at::arange(n * config_.all_tokens(), at::kLong).view({n, config_.all_tokens()});
    split->numbers = numbers.narrow(1, first, end - first).reshape(-1);
    has_class_token = has_class_token && first == 0;
    first = std::max<int64_t>(0, first - class_tokens), end -= class_tokens;
  }
  const Tensor patched = stem_ ? stem_->forward(images).flatten(1, 2) : patches(images, *config_.patch);
  Tensor x = hinge::linear(patched.narrow(1, first, end - first), patch_weight_.view({*config_.width, -1}), patch_bias_,
                           position_.narrow(1, first, end - first).expand({n, end - first, *config_.width}));
  if (has_class_token) x = at::cat({class_token_.expand({n, 1, *config_.width}), x}, 1);
  std::optional<nn::Noise> noise;
  if (seed) noise.emplace(*seed);
  const nn::Forward forward{noise ? &*noise : nullptr, nullptr, views ? &views->layers : nullptr, split ? &*split : nullptr};
  if (noise && config_.dropout > 0) {
    const double keep = 1 - config_.dropout;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(noise->next()));
    const Tensor factors = at::empty({n, config_.all_tokens(), *config_.width}, x.options().requires_grad(false));
    factors.bernoulli_(keep, generator).div_(keep);  // of all tokens: the same elements are dropped, however they are split
    x = x * (split ? factors.flatten(0, 1).index_select(0, split->numbers).view(x.sizes()) : factors);
  }
  if (views) views->embedding = x;
  x = encoder_->forward(x, {}, forward, views ? &views->blocks : nullptr).value();
  Tensor features = pooled(x, forward.sequence);
  if (rep_weight_.defined()) features = at::tanh(hinge::linear(features, rep_weight_, rep_bias_));
  if (views) views->pre_logits = features;
  return features;
}

Tensor Vit::forward(const Tensor& images, const std::optional<uint64_t>& noise, VitViews* views, nn::SequenceRanks* ranks) const {
  return hinge::linear(pre_logits(images, noise, views, ranks), head_weight_, head_bias_);
}

Tensor Vit::features(const Tensor& images) const { return pre_logits(images, /*seed=*/{}, nullptr, nullptr); }

double Vit::flops() const {
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double L = d(config_.all_tokens()), W = d(*config_.width), M = d(*config_.ffn.width);
  double blocks = d(*config_.depth) * (2 * L * W * 4 * W + 4 * L * W * M + 4 * L * L * W);
  for (int64_t i = 0; i < *config_.depth; ++i)
    if (config_.attention_of(i).has_gate()) blocks += 2 * L * W * W;
  const double features = config_.rep_size > 0 ? d(config_.rep_size) : W;
  double head = 2 * features * d(config_.classes) + (config_.rep_size > 0 ? 2 * W * features : 0);
  if (config_.pool == Pool::map) head += 2 * L * W * 2 * W + 4 * L * W + 4 * W * W + 4 * W * M;
  double embedding = 2 * d(config_.tokens()) * W * (stem_ ? W : d(config_.channels * *config_.patch * *config_.patch));
  int64_t side = config_.image_size;
  for (const nn::ConvStem::Layer& layer : config_.stem_layers()) {
    side /= layer.stride;
    embedding += 2 * d(side * side) * d(9 * layer.in * layer.out);
  }
  return embedding + blocks + head;
}

}  // namespace hinge::models
