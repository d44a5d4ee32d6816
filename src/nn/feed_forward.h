// The feed-forward layer of a transformer block as a module.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hinge/ops/feed_forward.h"
#include "nn/forward.h"
#include "nn/parameters.h"

namespace hinge::nn {

// The activations of a feed-forward layer: every activation of the engine, softmax along the hidden units among them, and softmax_norm
// (softmax with a layer norm of the result).
std::vector<std::string> feed_forward_activations();

struct FeedForwardConfig {
  std::optional<int64_t> width = {};  // what a model's size says, if not given
  std::string activation = "relu";
  double dropout = 0;

  template <class V> void visit(V& v) {
    v("width", width, "hidden units of a feed-forward layer");
    v("activation", activation, "activation of the hidden units; softmax_norm: softmax with a layer norm of the result",
      feed_forward_activations());
    v("dropout", dropout, "probability of dropping a hidden unit in training");
  }
};

// Throws std::runtime_error with the key unless a layer can be made of it; `key` is where the config is, "model.ffn".
void check(const FeedForwardConfig& config, const std::string& key);

// The hidden units [..., units] that a view's layer computes of its input.
at::Tensor hidden_units(const FeedForwardView& view);

class FeedForward {
 public:
  // The config has a width. Biases start at 0 or, as in big_vision, at normal numbers of the deviation given.
  FeedForward(const Builder& builder, const FeedForwardConfig& config, int64_t width, double bias_deviation = 0);

  // x [..., width]; the result plus `residual` if that is defined. `view` may be null.
  at::Tensor forward(const at::Tensor& x, const Forward& forward, const at::Tensor& residual = {}, LayerView* view = nullptr) const;

 private:
  kernels::Activation activation_;
  double dropout_;
  at::Tensor fc1_weight_, fc1_bias_, fc2_weight_, fc2_bias_, norm_weight_, norm_bias_;
};

}  // namespace hinge::nn
