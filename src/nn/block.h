// The blocks of a transformer, and a stack of them: self-attention, in a decoder cross-attention, feed-forward, on one residual stream.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "nn/feed_forward.h"
#include "nn/residual_stream.h"

namespace hinge::nn {

struct BlockConfig {
  int64_t width = 0, heads = 0;
  AttentionConfig attention = {};
  std::optional<AttentionConfig> cross = {};       // none: no cross-attention
  std::string attention_key = {}, cross_key = {};  // where the two are in the config, for errors
  bool causal = false;                             // of the self-attention
  FeedForwardConfig ffn = {};
  NormPlacement norm = NormPlacement::pre;
  double dropout = 0;                   // of the result of every branch
  double drop_path = 0;                 // probability that a sequence skips a branch in training
  double bias_deviation = 0;            // nn::FeedForward
  bool gradient_checkpointing = false;  // keep only the block's input for backward and run the block again there
};

// Stochastic depth: the probability grows from 0 at the first block of `depth` to `last` at the last one.
double drop_path_of(double last, int64_t block, int64_t depth);

// What blocks attend to. Batched self-attention needs nothing of it.
struct BlockContext {
  Offsets self = {};        // of jagged sequences
  at::Tensor context = {};  // of cross-attention: the tokens of the other sequences,
  Offsets cross = {};       // and which belong together
};

// What a decoder's block knows of the tokens before a step, for R rows (hypotheses) of n tokens.
struct BlockCache {
  at::Tensor past;     // keys and values of the tokens, [R, room for n + 1 or more, 2 width]
  at::Tensor context;  // keys and values of the context, [S, 2 width]
};

class Block {
 public:
  Block(const Builder& builder, const BlockConfig& config);

  // Runs the branches on the stream.
  void forward(ResidualStream& stream, const BlockContext& context, const Forward& forward) const;
  // The same for one more token per row, without gradients: row r's is token `at`, whose keys and values it writes into the cache. Which of
  // the context's rows a row attends to is in `cross`. `split`: see Attention::attend.
  void step(ResidualStream& stream, const BlockCache& cache, int64_t at, const Offsets& cross, const SequenceSplit* split = nullptr) const;

  at::Tensor context_keys_and_values(const at::Tensor& context) const { return cross_.value().keys_and_values(context); }
  bool regularised() const;
  const BlockConfig& config() const { return config_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  BlockConfig config_;
  std::string name_;  // "encoder.0."
  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  std::optional<Attention> cross_;
  Norm norm3_;  // with cross-attention
  FeedForward ffn_;
  std::vector<at::Tensor> parameters_;  // of this block, and those that attentions share
};

class Stack {
 public:
  // Blocks "NAME.0", "NAME.1", ...
  Stack(const Builder& builder, const std::string& name, const std::vector<BlockConfig>& blocks);

  // Runs x through all blocks; the stream can be finished with a norm, or taken as it is. Where `outputs` is given, what leaves each block
  // is added to it.
  ResidualStream forward(const at::Tensor& x, const BlockContext& context, const Forward& forward,
                         std::vector<at::Tensor>* outputs = nullptr) const;

  const std::vector<Block>& blocks() const { return blocks_; }
  // A stream over x for steps of decoding.
  ResidualStream stream(const at::Tensor& x, const Offsets& offsets, const Forward& forward) const;
  bool regularised() const;

 private:
  at::Tensor checkpointed_block(const Block& block, const at::Tensor& x, const BlockContext& context, const Forward& forward) const;

  std::vector<Block> blocks_;
};

}  // namespace hinge::nn
