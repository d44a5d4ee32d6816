// Vision transformers: patches of an image as tokens, an encoder, a pooled representation, a linear head.
// Parameters have timm's names (blocks.0.attn.qkv.weight, ...), so that weights travel under them; docs/vision.md lists what differs.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/block.h"
#include "nn/conv_stem.h"
#include "nn/position.h"

namespace hinge::models {

// What makes tokens of an image: a linear embedding of its patches, or convolutions that end at the patches' grid (nn/conv_stem.h).
enum class Stem { patches, conv };
inline std::vector<std::pair<std::string, Stem>> config_words(Stem) { return {{"patches", Stem::patches}, {"conv", Stem::conv}}; }

enum class Pool { gap, tok, map };
inline std::vector<std::pair<std::string, Pool>> config_words(Pool) { return {{"gap", Pool::gap}, {"tok", Pool::tok}, {"map", Pool::map}}; }

// The attention of the first blocks, where it differs from that of the others.
struct FirstBlocksAttention : nn::AttentionOverride {
  int64_t blocks = 0;

  template <class V> void visit(V& v) {
    v("blocks", blocks, "number of first blocks with an attention of their own");
    nn::AttentionOverride::visit(v);
  }
};

struct VitAttentionConfig : nn::AttentionConfig {
  FirstBlocksAttention first = {};

  template <class V> void visit(V& v) {
    nn::AttentionConfig::visit(v);
    v("first", first, "the attention of the first blocks");
  }
};

struct VitConfig {
  std::string size = {};
  int64_t image_size = 224, channels = 3, classes = 1000;
  std::optional<int64_t> patch = {}, width = {}, depth = {}, heads = {};  // resolved() fills them in, and the width of ffn
  Stem stem = Stem::patches;
  nn::NormPlacement norm = nn::NormPlacement::pre;
  nn::Position position = nn::Position::learned;
  Pool pool = Pool::gap;
  bool pool_first = false;
  int64_t rep_size = 0;
  double head_bias = 0.0;
  nn::Init init = nn::Init::xavier;
  double dropout = 0.0, drop_path = 0.0;
  nn::FeedForwardConfig ffn = {.width = {}, .activation = "gelu"};
  VitAttentionConfig attention = default_attention();
  bool gradient_checkpointing = false;  // a matter of training, no key of the model

  template <class V> void visit(V& v) {
    v("size", size,
      "sizes by name, such as S/16 (Ti, S, M, B, L and a patch size): sets patch, width, depth, heads and ffn.width; empty and without "
      "these: S/16");
    v("image_size", image_size, "pixels of an image's side");
    v("channels", channels, "channels of an image");
    v("classes", classes, "classes of the head; 0: as many as the data set has");
    v("patch", patch, "pixels of a patch's side");
    v("stem", stem,
      "what makes tokens of an image: an embedding of its patches, or convolutions of 3 x 3 pixels that end at the patches' grid, for "
      "small images");
    v("width", width, "elements of a token");
    v("depth", depth, "blocks");
    v("heads", heads, "attention heads");
    v("norm", norm, "layer norm before each branch, or after its sum with the residual");
    v("position", position, "position embedding: learned, or fixed sines and cosines");
    v("pool", pool, "mean of the tokens, a class token, or attention pooling");
    v("pool_first", pool_first, "with pool = gap: take the mean before the last norm, as timm does, instead of after");
    v("rep_size", rep_size, "width of a tanh layer before the head; 0: none, -1: as wide as a token");
    v("head_bias", head_bias, "initial value of the head's bias");
    v("init", init, "initialisation of the stem and of the tanh layer: Xavier uniform, or LeCun normal as in big_vision");
    v("dropout", dropout,
      "probability of dropping an element of the embeddings and of each branch in training; ffn.dropout is for hidden units");
    v("drop_path", drop_path, "stochastic depth: probability that an example skips a branch of the last block; falls to 0 at the first");
    v("ffn", ffn, "the feed-forward layers");
    v("attention", attention, "the attention");
  }

  static VitAttentionConfig default_attention() {
    VitAttentionConfig attention;
    attention.preset = "relu-vit", attention.qk_norm = true;
    return attention;
  }
  nn::AttentionConfig attention_of(int64_t block) const {
    if (block < attention.first.blocks) return overridden(attention, attention.first);
    return attention;
  }
  std::vector<nn::ConvStem::Layer> stem_layers() const {  // of a resolved one; none without convolutions
    return stem == Stem::conv ? nn::ConvStem::layers(channels, *width, *patch) : std::vector<nn::ConvStem::Layer>();
  }
  int64_t tokens() const { return (image_size / *patch) * (image_size / *patch); }  // of a resolved one, without the class token
  int64_t all_tokens() const { return tokens() + (pool == Pool::tok); }
};

// Fills in the sizes, those of the size's name or of S/16 where they are not given, and checks everything. Throws std::runtime_error
// with the key.
VitConfig resolved(VitConfig config);

// Throws std::runtime_error, with the key, for a model whose tokens `ranks` ranks cannot share.
void require_splittable(const VitConfig& resolved, int64_t ranks);

// What a forward pass shows on request.
struct VitViews {
  at::Tensor pre_logits;              // [n, width or rep_size]
  std::vector<nn::LayerView> layers;  // blocks.0.attn, blocks.0.mlp, ...
  at::Tensor embedding;               // what enters the first block, [n, tokens, width]
  std::vector<at::Tensor> blocks;     // what leaves each block, [n, tokens, width]
};

class Vit {
 public:
  Vit(const VitConfig& config, uint64_t seed);
  Vit(const Vit&) = delete;
  Vit& operator=(const Vit&) = delete;

  const VitConfig& config() const { return config_; }
  const nn::Parameters& parameters() const { return parameters_; }

  // images [n, height, width, channels], float32; logits [n, classes].
  // `noise`: in training, the seed of everything that the pass drops. `ranks`: they share the tokens, and views show those of this one; all
  // have the same images and the same logits. The gradients of a sum of losses, one of each rank, are the sums of those that the ranks
  // have.
  at::Tensor forward(const at::Tensor& images, const std::optional<uint64_t>& noise = {}, VitViews* views = nullptr,
                     nn::SequenceRanks* ranks = nullptr) const;
  template <std::same_as<bool> Training> at::Tensor forward(const at::Tensor& images, Training training) const = delete;  // no seed
  // The input of the head: [n, width or rep_size].
  at::Tensor features(const at::Tensor& images) const;

  // Multiplications and additions of one image's forward pass, counted as 2 a pair; products and attention only.
  double flops() const;

 private:
  at::Tensor pooled(const at::Tensor& x, const nn::SequenceSplit* split) const;
  at::Tensor pre_logits(const at::Tensor& images, const std::optional<uint64_t>& seed, VitViews* views, nn::SequenceRanks* ranks) const;

  VitConfig config_;
  nn::Parameters parameters_;
  std::optional<nn::ConvStem> stem_;
  at::Tensor patch_weight_, patch_bias_, class_token_, position_;
  std::optional<nn::Stack> encoder_;
  nn::Norm norm_;  // pre-norm
  struct MapPool {
    at::Tensor probe;
    nn::Attention attention;
    nn::Norm norm;
    nn::FeedForward ffn;
  };
  std::optional<MapPool> map_;
  at::Tensor rep_weight_, rep_bias_, head_weight_, head_bias_;
};

// A learned position embedding [1, n^2, width] for another number of tokens: bilinear, corners on corners.
at::Tensor resample_position(const at::Tensor& position, int64_t side);

}  // namespace hinge::models
