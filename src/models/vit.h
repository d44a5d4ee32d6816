// Vision transformers: patches of an image as tokens, an encoder, a pooled representation, a linear head.
// Parameters have timm's names (blocks.0.attn.qkv.weight, ...), so that weights travel under them; docs/vit.md lists what differs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/encoder_block.h"

namespace hinge::models {

struct VitConfig {
  std::string variant = {};
  int64_t image_size = 224, channels = 3, classes = 1000;
  std::optional<int64_t> patch = {}, width = {}, depth = {}, mlp_width = {}, heads = {};  // resolved() fills them in
  std::string position = "learn", pool = "gap";
  bool pool_first = false;
  int64_t rep_size = 0;
  double head_bias = 0.0;
  double dropout = 0.0, drop_path = 0.0;
  bool recompute = false;  // a matter of training (train.recompute), no key of the model
  nn::AttentionConfig attention = {};

  template <class V> void visit(V& v) {
    v("variant", variant,
      "sizes by name, such as S/16 (Ti, S, M, B, L and a patch size): sets patch, width, depth, mlp_width and heads; empty and without "
      "these: S/16");
    v("image_size", image_size, "pixels of an image's side");
    v("channels", channels, "channels of an image");
    v("classes", classes, "classes of the head; 0: the number of the data set");
    v("patch", patch, "pixels of a patch's side");
    v("width", width, "elements of a token");
    v("depth", depth, "blocks");
    v("mlp_width", mlp_width, "width of the feed-forward layer's inside");
    v("heads", heads, "attention heads");
    v("position", position, "position embedding", {"learn", "sincos2d"});
    v("pool", pool, "mean of the tokens, a class token, or attention pooling", {"gap", "tok", "map"});
    v("pool_first", pool_first, "with pool = gap: the mean before the last norm, as timm has it, instead of after");
    v("rep_size", rep_size, "width of a tanh layer before the head; 0: none, -1: as wide as a token");
    v("head_bias", head_bias, "start of the head's bias");
    v("dropout", dropout, "probability of dropping an element in training");
    v("drop_path", drop_path, "stochastic depth: probability that an example skips a branch of the last block; falls to 0 at the first");
    v("attention", attention, "the attention");
  }

  int64_t tokens() const { return (image_size / *patch) * (image_size / *patch); }  // of a resolved one
};

// Fills in the sizes, those of the variant's name or of S/16 where they are not given, and checks everything. Throws std::runtime_error
// with the key.
VitConfig resolved(VitConfig config);

// What a forward pass shows on request.
struct VitViews {
  at::Tensor pre_logits;                  // [n, width or rep_size]
  std::vector<nn::AttentionView> layers;  // of each block
  at::Tensor embedding;                   // what enters the first block, [n, tokens, width]
  std::vector<at::Tensor> blocks;         // what leaves each block, [n, tokens, width]
};

class Vit {
 public:
  Vit(const VitConfig& config, uint64_t seed);
  Vit(const Vit&) = delete;
  Vit& operator=(const Vit&) = delete;

  const VitConfig& config() const { return config_; }
  const nn::Parameters& parameters() const { return parameters_; }

  // images [n, height, width, channels], float32; logits [n, classes].
  at::Tensor forward(const at::Tensor& images, bool training, VitViews* views = nullptr) const;
  // The input of the head: [n, width or rep_size].
  at::Tensor features(const at::Tensor& images) const;

  // Multiplications and additions of one image's forward pass, counted as 2 a pair; products and attention only.
  double flops() const;

 private:
  at::Tensor pooled(const at::Tensor& x) const;
  at::Tensor attention_pool(const at::Tensor& x) const;
  at::Tensor pre_logits(const at::Tensor& images, bool training, VitViews* views) const;

  VitConfig config_;
  nn::Parameters parameters_;
  at::Tensor patch_weight_, patch_bias_, class_token_, position_;
  std::vector<std::unique_ptr<nn::EncoderBlock>> blocks_;
  at::Tensor norm_weight_, norm_bias_;
  struct MapPool {
    at::Tensor probe, q_weight, q_bias, kv_weight, kv_bias, out_weight, out_bias, norm_weight, norm_bias, w1, b1, w2, b2;
  } map_;
  at::Tensor rep_weight_, rep_bias_, head_weight_, head_bias_;
};

// Fixed position embedding of a square of `side` x `side` tokens, [1, side^2, width]: sines and cosines of x, then of y.
at::Tensor sincos2d(int64_t side, int64_t width);

// A learned position embedding [1, n^2, width] for another number of tokens: bilinear, corners on corners.
at::Tensor resample_position(const at::Tensor& position, int64_t side);

}  // namespace hinge::models
