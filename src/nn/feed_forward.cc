#include "nn/feed_forward.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hinge/ops/dense.h"
#include "support/require.h"

namespace hinge::nn {
namespace {

using at::Tensor;

constexpr const char* kSoftmaxNorm = "softmax_norm";

}  // namespace

std::vector<std::string> feed_forward_activations() {
  std::vector<std::string> names(kernels::kActivationNames.begin(), kernels::kActivationNames.end());
  names.emplace_back(kSoftmaxNorm);
  return names;
}

void check(const FeedForwardConfig& config, const std::string& key) {
  const std::vector<std::string> known = feed_forward_activations();
  support::require(std::find(known.begin(), known.end(), config.activation) != known.end(),
                   fmt::format("{}.activation: '{}' is unknown; known are {}", key, config.activation, fmt::join(known, ", ")));
  support::require(config.dropout >= 0 && config.dropout < 1, fmt::format("{}.dropout must be in [0, 1), got {}", key, config.dropout));
  support::require(config.width.value_or(1) > 0, fmt::format("{}.width must be at least 1, got {}", key, config.width.value_or(1)));
}

Tensor hidden_units(const FeedForwardView& view) {
  const at::NoGradGuard guard;
  return feed_forward(view.activation, view.x, view.fc1, view.fc1_bias, at::eye(view.fc1.size(0), view.x.options()), {});
}

FeedForward::FeedForward(const Builder& builder, const FeedForwardConfig& config, int64_t width, double bias_deviation)
    : activation_(*kernels::parse_activation(config.activation == kSoftmaxNorm ? "softmax" : config.activation)), dropout_(config.dropout) {
  const int64_t hidden = config.width.value();
  const auto bias = [&](const char* name, int64_t size) {
    return bias_deviation > 0 ? builder.normal(name, {size}, bias_deviation) : builder.constant(name, {size}, 0);
  };
  fc1_weight_ = builder.xavier("fc1.weight", hidden, width);
  fc1_bias_ = bias("fc1.bias", hidden);
  fc2_weight_ = builder.xavier("fc2.weight", width, hidden);
  if (config.activation == kSoftmaxNorm) {
    // The norm's bias takes the place of fc2's.
    norm_weight_ = builder.constant("norm.weight", {width}, 1);
    norm_bias_ = builder.constant("norm.bias", {width}, 0);
  } else {
    fc2_bias_ = bias("fc2.bias", width);
  }
}

Tensor FeedForward::forward(const Tensor& x, const Forward& forward, const Tensor& residual, LayerView* view) const {
  const bool drops = forward.noise && dropout_ > 0;
  if (view) view->ffn = FeedForwardView{activation_, x, fc1_weight_, fc1_bias_, fc2_weight_.t()};
  const Tensor y =
      feed_forward(activation_, x, fc1_weight_, fc1_bias_, fc2_weight_, fc2_bias_, norm_weight_.defined() ? Tensor() : residual,
                   drops ? dropout_ : 0, drops ? forward.noise->next() : 0, forward.sequence ? forward.sequence->numbers : Tensor());
  if (!norm_weight_.defined()) return y;
  const Tensor normed = layer_norm_fork(y, norm_weight_, norm_bias_, kNormEps).first;
  return residual.defined() ? normed + residual : normed;
}

}  // namespace hinge::nn
