#include "nn/encoder_block.h"

#include <ATen/ATen.h>

#include "hinge/ops/memory.h"
#include "hinge/ops/sequence.h"
#include "nn/random.h"
#include "nn/recompute.h"

namespace hinge::nn {

EncoderBlock::EncoderBlock(const Builder& builder, const BlockConfig& config, const AttentionConfig& attention)
    : config_(config),
      norm1_weight_(builder.constant("norm1.weight", {config.width}, 1)),
      norm1_bias_(builder.constant("norm1.bias", {config.width}, 0)),
      attention_(builder.under("attn"), attention, config.width, config.heads),
      norm2_weight_(builder.constant("norm2.weight", {config.width}, 1)),
      norm2_bias_(builder.constant("norm2.bias", {config.width}, 0)),
      w1_(builder.xavier("mlp.fc1.weight", config.mlp_width, config.width)),
      b1_(builder.normal("mlp.fc1.bias", {config.mlp_width}, 1e-6)),
      w2_(builder.xavier("mlp.fc2.weight", config.width, config.mlp_width)),
      b2_(builder.normal("mlp.fc2.bias", {config.width}, 1e-6)) {
  for (const Parameter& parameter : builder.parameters.all())
    if (parameter.name.rfind(builder.prefix, 0) == 0) parameters_.push_back(parameter.value);
}

at::Tensor EncoderBlock::forward(const at::Tensor& x, bool training, AttentionView* view) const {
  if (!config_.recompute || !training || view) return run(x, training, view);
  return recomputed([this](const at::Tensor& input) { return run(input, /*training=*/true, nullptr); }, x, parameters_);
}

at::Tensor EncoderBlock::run(const at::Tensor& x, bool training, AttentionView* view) const {
  const auto [normed, skip] = layer_norm_fork(x, norm1_weight_, norm1_bias_, kNormEps);
  if (!training || (config_.dropout == 0 && config_.drop_path == 0)) {
    const at::Tensor middle = attention_.forward(normed, skip, training, view);
    const auto [normed2, skip2] = layer_norm_fork(middle, norm2_weight_, norm2_bias_, kNormEps);
    return read_global_memory(kernels::Activation::gelu, normed2, w1_, b1_, w2_, b2_, skip2);
  }
  const at::Tensor attended = drop_paths(attention_.forward(normed, {}, training, view));
  const auto [normed2, middle] =
      residual_norm(skip.flatten(0, 1), attended.flatten(0, 1), norm2_weight_, norm2_bias_, kNormEps, config_.dropout, drawn_seed());
  const at::Tensor read =
      read_global_memory(kernels::Activation::gelu, normed2, w1_, b1_, w2_, b2_, {}, config_.dropout, drawn_seed()).view(x.sizes());
  return middle.view(x.sizes()) + at::dropout(drop_paths(read), config_.dropout, training);
}

at::Tensor EncoderBlock::drop_paths(const at::Tensor& branch) const {
  if (config_.drop_path == 0) return branch;
  const double keep = 1 - config_.drop_path;
  return branch * at::bernoulli(at::full({branch.size(0), 1, 1}, keep, branch.options())).div_(keep);
}

}  // namespace hinge::nn
