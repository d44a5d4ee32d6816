// One pre-norm block of an encoder:  x + attention(norm(x)), then x + feed_forward(norm(x)).
#pragma once

#include "nn/attention.h"

namespace hinge::nn {

struct BlockConfig {
  int64_t width = 0, mlp_width = 0, heads = 0;
  double dropout = 0;      // of the results of attention and feed-forward, and inside the latter
  double drop_path = 0;    // probability that an example skips a branch in training
  bool recompute = false;  // keep only the block's input for backward and run the block again there
};

class EncoderBlock {
 public:
  EncoderBlock(const Builder& builder, const BlockConfig& config, const AttentionConfig& attention);

  at::Tensor forward(const at::Tensor& x, bool training, AttentionView* view = nullptr) const;

 private:
  at::Tensor run(const at::Tensor& x, bool training, AttentionView* view) const;
  at::Tensor drop_paths(const at::Tensor& branch) const;  // of some examples, the others scaled up

  BlockConfig config_;
  at::Tensor norm1_weight_, norm1_bias_;
  SelfAttention attention_;
  at::Tensor norm2_weight_, norm2_bias_, w1_, b1_, w2_, b2_;
  std::vector<at::Tensor> parameters_;  // of this block
};

}  // namespace hinge::nn
