// Encoder-decoder transformers for translation: the Transformer, the ReLUFormer and what lies between, on sequences without padding.
//
// Legend: S source tokens and T target tokens of all sequences of a batch together, C width, V vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/kv_cache.h"
#include "nn/block.h"
#include "nn/position.h"

namespace hinge::models {

// What a stack may have of its own, beside what the model says for both.
struct StackConfig {
  std::optional<int64_t> depth = {};
  nn::AttentionOverride attention = {};

  template <class V> void visit(V& v) {
    v("depth", depth, "blocks of this stack; none: model.depth");
    v("attention", attention, "its self-attention, where it differs from model.attention");
  }
};

struct CrossConfig {
  nn::AttentionOverride attention = {};
  template <class V> void visit(V& v) { v("attention", attention, "the cross-attention, where it differs from model.attention"); }
};

struct Seq2SeqConfig {
  std::string size = {};
  int64_t vocabulary = 0;
  std::optional<int64_t> width = {}, depth = {}, heads = {};  // resolved() fills them in, and the width of ffn
  nn::NormPlacement norm = nn::NormPlacement::post;
  bool tied = true;
  nn::Position position = nn::Position::sinusoidal;
  int64_t max_length = 4096;
  double dropout = 0.1, drop_path = 0.0;
  nn::FeedForwardConfig ffn = {};
  nn::AttentionConfig attention = default_attention();
  StackConfig encoder = {}, decoder = {};
  CrossConfig cross = {};
  bool gradient_checkpointing = false;  // a matter of training, no key of the model

  template <class V> void visit(V& v) {
    v("size", size, "tiny, small, iwslt or base: sets width, depth, heads and ffn.width; empty and without these: iwslt");
    v("vocabulary", vocabulary, "tokens of the vocabulary that source and target share; 0: as many as the tokenizer has");
    v("width", width, "elements of a token");
    v("depth", depth, "blocks of the encoder, and of the decoder");
    v("heads", heads, "attention heads");
    v("norm", norm, "layer norm before each branch, or after its sum with the residual");
    v("tied", tied, "source, target and output share one matrix of embeddings");
    v("position", position, "position embedding: learned, or fixed sines and cosines");
    v("max_length", max_length, "tokens of the longest sequence");
    v("dropout", dropout,
      "probability of dropping an element of the embeddings and of each branch in training; ffn.dropout is for hidden units");
    v("drop_path", drop_path, "stochastic depth: probability that a sequence skips a branch of the last block; falls to 0 at the first");
    v("ffn", ffn, "the feed-forward layers");
    v("attention", attention, "every attention that has nothing of its own");
    v("encoder", encoder, "the encoder");
    v("decoder", decoder, "the decoder");
    v("cross", cross, "cross-attention, of the target to the source");
  }

  static nn::AttentionConfig default_attention() {
    nn::AttentionConfig attention;
    attention.preset = "softmax";
    return attention;
  }

  // Of a resolved one.
  int64_t encoder_depth() const { return encoder.depth.value_or(*depth); }
  int64_t decoder_depth() const { return decoder.depth.value_or(*depth); }
  nn::AttentionConfig encoder_attention() const { return overridden(attention, encoder.attention); }
  nn::AttentionConfig decoder_attention() const { return overridden(attention, decoder.attention); }
  nn::AttentionConfig cross_attention() const { return overridden(attention, cross.attention); }
};

// Fills in the sizes, and checks everything. Throws std::runtime_error with the key.
Seq2SeqConfig resolved(Seq2SeqConfig config);

// Throws std::runtime_error, with the key, for a model whose tokens `ranks` ranks cannot share.
void require_splittable(const Seq2SeqConfig& resolved, int64_t ranks);

// The options of the three attentions, by what they are called in configs: encoder, decoder, cross. Throws as resolved() does.
std::vector<std::pair<std::string, PackedAttentionOptions>> attention_options(const Seq2SeqConfig& config);

// Sequences one after another, without padding.
struct Sequences {
  at::Tensor tokens;   // int64 [L], numbers in the vocabulary
  at::Tensor offsets;  // int64 [sequences + 1], from 0 to L; no sequence is empty

  int64_t count() const { return offsets.numel() - 1; }
};
Sequences sequences_of(const std::vector<std::vector<int64_t>>& rows);

// What a forward pass shows on request.
struct Seq2SeqViews {
  std::vector<nn::LayerView> layers;  // in the order of computation: encoder.0.attn, encoder.0.mlp, ..., decoder.0.cross_attn, ...
  at::Tensor encoder, decoder;        // what leaves the stacks, [S, C] and [T, C]
};

struct Seq2SeqOptions {
  std::optional<uint64_t> noise = {};  // in training, the seed of everything that the pass drops
  bool regulariser = false;            // compute it, with this margin of the entropy
  double regulariser_margin = kernels::kRegulariserMargin;
  double label_smoothing = 0;  // of loss(): the share of the target probability that is spread evenly over the vocabulary
  Seq2SeqViews* views = nullptr;
  // They share the tokens of each sequence: all have the same sequences, and what they get is that of their own tokens.
  nn::SequenceRanks* ranks = nullptr;
};

struct Seq2SeqOutput {
  at::Tensor logits;       // [T, V]; with ranks, those of this rank's target tokens
  at::Tensor regulariser;  // see Seq2Seq::has_regulariser; undefined if not asked for
};

// With ranks, `loss` is the mean over this rank's target tokens, the counts are theirs, and the regulariser is this rank's part of the sum.
struct Seq2SeqLoss {
  at::Tensor loss;         // scalar: the mean over target tokens of the label-smoothed cross-entropy
  at::Tensor regulariser;  // scalar, not part of the loss: the trainer weighs it; undefined if not asked for
  double nll = 0;          // sum over target tokens of - log p(label), without smoothing
  int64_t tokens = 0;      // target tokens
  int64_t right = 0;       // of these, how many have their label first
};

class Seq2Seq {
 public:
  Seq2Seq(const Seq2SeqConfig& config, uint64_t seed);
  Seq2Seq(const Seq2Seq&) = delete;
  Seq2Seq& operator=(const Seq2Seq&) = delete;

  const Seq2SeqConfig& config() const { return config_; }
  const nn::Parameters& parameters() const { return parameters_; }

  // The target's tokens as the decoder reads them (begin of sentence first): row t of the logits is about what follows token t.
  // The two batches have the same number of sequences.
  Seq2SeqOutput forward(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options = {}) const;
  // labels int64 [T]: what follows each token of the target (end of sentence last). Never holds more than a part of the logits.
  Seq2SeqLoss loss(const Sequences& source, const Sequences& target, const at::Tensor& labels, const Seq2SeqOptions& options = {}) const;

  // The ReLUFormer's L_reg: its mean over rows, heads and the attentions that have one, which are those whose h is relu, relu2 or relu6.
  // False: no attention has one, and asking for it throws.
  bool has_regulariser() const;

  // Decoding, without gradients: a cache with one row for each source sequence, before any token.
  // Ranks share the tokens of each source: every one keeps the keys and values of its own.
  KvCache encode(const Sequences& source, nn::SequenceRanks* ranks = nullptr) const;
  // Reads one more token per row (int64 [R], begin of sentence at first); logits [R, V] of what follows. The ranks that share a source read
  // the same tokens, at the same time, and get the same logits up to rounding.
  at::Tensor step(const at::Tensor& tokens, KvCache& cache) const;

  // Multiplications and additions of a forward pass over sequences of these lengths, counted as 2 a pair; products and attention only.
  double flops(const std::vector<int64_t>& source_lengths, const std::vector<int64_t>& target_lengths) const;

 private:
  at::Tensor embedded(const at::Tensor& embedding, const at::Tensor& positions, const Sequences& sequences,
                      const nn::Forward& forward) const;
  // The source as the decoder attends to it, [S, C].
  at::Tensor encoded(const Sequences& source, const nn::Forward& forward) const;
  // What leaves the decoder, [T, C].
  at::Tensor run(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options, at::Tensor* regulariser) const;

  Seq2SeqConfig config_;
  nn::Parameters parameters_;
  at::Tensor source_embedding_, target_embedding_, output_;  // one matrix if tied
  at::Tensor source_positions_, target_positions_;
  std::optional<nn::Stack> encoder_, decoder_;
  nn::Norm encoder_norm_, decoder_norm_;  // pre-norm
};

}  // namespace hinge::models
