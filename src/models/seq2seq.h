// Encoder-decoder transformers for translation: the Transformer, the ReLUFormer and what lies between, on sequences without padding.
// Every layer is a read from a memory (nn/memory.h): attention reads the tokens, the feed-forward network reads parameters.
//
// Legend: S source tokens and T target tokens of all sequences of a batch together, C width, V vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/memory.h"

namespace hinge::models {

struct Seq2SeqConfig {
  std::string size = {};
  int64_t vocabulary = 0;
  std::optional<int64_t> width = {}, slots = {}, heads = {}, encoder_depth = {}, decoder_depth = {};  // resolved() gives all of them
  std::string norm = "post";
  bool tied = true;
  std::string position = "sinusoidal";
  int64_t max_length = 4096;
  double dropout = 0.1;
  std::string ffn = "relu";
  double ffn_dropout = 0.0;
  std::string attention = "softmax";
  std::optional<double> gamma = {}, attention_dropout = {};
  nn::LocalMemoryConfig encoder{""}, decoder{""}, cross{""};

  template <class V> void visit(V& v) {
    v("size", size, "tiny, small, iwslt or base (none: iwslt): width, slots, heads, encoder_depth and decoder_depth by name");
    v("vocabulary", vocabulary, "tokens of the vocabulary that source and target share; 0: those of the tokenizer");
    v("width", width, "elements of a token");
    v("slots", slots, "slots of the feed-forward memory: the width of its inside");
    v("heads", heads, "attention heads");
    v("encoder_depth", encoder_depth, "blocks of the encoder");
    v("decoder_depth", decoder_depth, "blocks of the decoder");
    v("norm", norm, "layer norm before each branch, or after its sum with the residual", {"pre", "post"});
    v("tied", tied, "source, target and output share one matrix of embeddings");
    v("position", position, "position embedding", {"sinusoidal", "learned"});
    v("max_length", max_length, "tokens of the longest sequence");
    v("dropout", dropout, "probability of dropping an element of the embeddings and of each branch in training");
    v("ffn", ffn,
      "phi of the feed-forward memory: relu, gelu, softmax, softmax_norm (with a layer norm of its result), or another activation");
    v("ffn_dropout", ffn_dropout, "probability of dropping a score of the feed-forward memory in training");
    v("attention", attention, "preset of the attentions that have none of their own");
    v("gamma", gamma, "gamma of the reluformer attentions that have none of their own");
    v("attention_dropout", attention_dropout, "dropout of the attentions that have none of their own");
    v("encoder", encoder, "attention of the source on itself; presets as in vision, and sparsemax, entmax15, rela");
    v("decoder", decoder, "attention of the target on its past");
    v("cross", cross, "attention of the target on the source");
  }
};

// Fills in sizes and what is given for all attentions at once, and checks everything. Throws std::runtime_error with the key.
Seq2SeqConfig resolved(Seq2SeqConfig config);

// Sequences one after another, without padding.
struct Sequences {
  at::Tensor tokens;   // int64 [L], numbers in the vocabulary
  at::Tensor offsets;  // int64 [sequences + 1], from 0 to L; no sequence is empty

  int64_t count() const { return offsets.numel() - 1; }
};
Sequences sequences_of(const std::vector<std::vector<int64_t>>& rows);

// What a forward pass shows on request.
struct Seq2SeqViews {
  std::vector<nn::MemoryView> memories;  // in the order of computation: encoder.0.self, encoder.0.ffn, ..., decoder.0.cross, ...
  at::Tensor encoder, decoder;           // what leaves the stacks, [S, C] and [T, C]
};

struct Seq2SeqOptions {
  bool training = false;       // dropout; its seed is drawn from the default generator, once a pass
  bool regulariser = false;    // compute it
  double label_smoothing = 0;  // of loss(): the share of a target that is spread evenly over the vocabulary
  Seq2SeqViews* views = nullptr;
};

struct Seq2SeqOutput {
  at::Tensor logits;       // [T, V]
  at::Tensor regulariser;  // see Seq2Seq::has_regulariser; undefined if not asked for
};

struct Seq2SeqLoss {
  at::Tensor loss;         // scalar: the mean over target tokens of the label-smoothed cross-entropy
  at::Tensor regulariser;  // scalar, not part of the loss: the trainer weighs it; undefined if not asked for
  double nll = 0;          // sum over target tokens of - log p(label), without smoothing
  int64_t tokens = 0;      // target tokens
  int64_t right = 0;       // of these, how many have their label first
};

// What decoding has read so far: R rows (hypotheses), all of the same length, in the order of their sentences.
class DecodeState {
 public:
  DecodeState() = default;
  DecodeState(DecodeState&&) = default;  // a copy would share what a step writes
  DecodeState& operator=(DecodeState&&) = default;

  int64_t rows() const { return static_cast<int64_t>(sentence_.size()); }
  int64_t length() const { return length_; }                           // tokens that each row holds
  const std::vector<int64_t>& sentences() const { return sentence_; }  // of each row: its sentence in the source, never decreasing

 private:
  friend class Seq2Seq;
  struct Layer {
    at::Tensor source;  // keys and values of the source, [S, 2 C]
    at::Tensor past;    // keys and values of the target, [rows, room, 2 C]: the first rows() and length() are in use
  };
  void make_room(int64_t length, int64_t width, const at::TensorOptions& options);

  std::vector<Layer> layers_;
  std::vector<int64_t> sentence_;
  int64_t length_ = 0, room_ = 0;
  at::Tensor source_offsets_, row_offsets_;
  std::vector<int32_t> writer_;  // [rows, room]: the row that wrote what is at a place of `past`; reorder() copies only what differs
};

class Seq2Seq {
 public:
  Seq2Seq(const Seq2SeqConfig& config, uint64_t seed);
  ~Seq2Seq();
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

  // Decoding, without gradients: a state with one row for each source sequence, before any token.
  DecodeState encode(const Sequences& source) const;
  // Reads one more token per row (int64 [R], begin of sentence at first); logits [R, V] of what follows.
  at::Tensor step(const at::Tensor& tokens, DecodeState& state) const;
  // Row i of the state becomes what row indices[i] was (int64 [new R]): beams that go on, multiply or end. The rows of a sentence must
  // stay together, in the order of sentences; a sentence may lose all its rows.
  void reorder(DecodeState& state, const at::Tensor& indices) const;

  // Multiplications and additions of a forward pass over sequences of these lengths, counted as 2 a pair; products and attention only.
  double flops(const std::vector<int64_t>& source_lengths, const std::vector<int64_t>& target_lengths) const;

 private:
  struct Parts;
  // What leaves the decoder, [T, C].
  at::Tensor run(const Sequences& source, const Sequences& target, const Seq2SeqOptions& options, at::Tensor* regulariser) const;

  Seq2SeqConfig config_;
  nn::Parameters parameters_;
  std::unique_ptr<Parts> parts_;
};

// sin and cos of position / 10000^(2 i / width) in the columns 2 i and 2 i + 1: [length, width].
at::Tensor sinusoidal_positions(int64_t length, int64_t width);

}  // namespace hinge::models
