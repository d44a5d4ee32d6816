#include "nn/block.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "nn/gradient_checkpointing.h"

namespace hinge::nn {
namespace {

using at::Tensor;

std::optional<Attention> cross_attention(const Builder& builder, const BlockConfig& config) {
  if (!config.cross) return {};
  return Attention(builder.under("cross_attn"), *config.cross, config.cross_key, config.width, config.heads, Attention::To::context);
}

void add_to(Regulariser& total, const Regulariser& block) {
  if (!block.sum.defined()) return;
  total.sum = total.sum.defined() ? total.sum + block.sum : block.sum;
  total.attentions += block.attentions;
}

// A block's regulariser is summed up by itself: the same bits whether the block is checkpointed or not.
template <class Run> void add_regularised(const Forward& forward, const Run& run) {
  if (!forward.regulariser) return run(forward);
  Regulariser own{forward.regulariser->margin};
  run(Forward{forward.noise, &own, forward.views, forward.sequence});
  add_to(*forward.regulariser, own);
}

}  // namespace

double drop_path_of(double last, int64_t block, int64_t depth) {
  return depth > 1 ? last * static_cast<double>(block) / static_cast<double>(depth - 1) : last;
}

// timm's names where timm has the part.
Block::Block(const Builder& builder, const BlockConfig& config)
    : config_(config),
      name_(builder.prefix),
      norm1_(builder, "norm1", config.width),
      attention_(builder.under("attn"), config.attention, config.attention_key, config.width, config.heads, Attention::To::self,
                 config.causal),
      norm2_(builder, "norm2", config.width),
      cross_(cross_attention(builder, config)),
      norm3_(config.cross ? Norm(builder, "norm3", config.width) : Norm()),
      ffn_(builder.under("mlp"), config.ffn, config.width, config.bias_deviation) {
  for (const Parameter& parameter : builder.parameters.all())
    if (parameter.name.starts_with(builder.prefix) || parameter.name.starts_with(kSharedPrefix)) parameters_.push_back(parameter.value);
}

void Block::forward(ResidualStream& stream, const BlockContext& context, const Forward& forward) const {
  stream.branch(norm1_, config_.drop_path, name_ + "attn", [&](const Tensor& x, const Tensor& residual, LayerView* view) {
    return attention_.forward(x, {}, context.self, forward, residual, view);
  });
  if (cross_)
    stream.branch(norm2_, config_.drop_path, name_ + "cross_attn", [&](const Tensor& x, const Tensor& residual, LayerView* view) {
      return cross_->forward(x, context.context, context.cross, forward, residual, view);
    });
  stream.branch(cross_ ? norm3_ : norm2_, config_.drop_path, name_ + "mlp",
                [&](const Tensor& x, const Tensor& residual, LayerView* view) { return ffn_.forward(x, forward, residual, view); });
}

void Block::step(ResidualStream& stream, const BlockCache& cache, int64_t at, const Offsets& cross, const SequenceSplit* split) const {
  const int64_t width = config_.width;
  stream.branch(norm1_, 0, name_, [&](const Tensor& x, const Tensor& residual, LayerView*) {
    const Tensor qkv = attention_.project(x), past = cache.past.narrow(0, 0, x.size(0));
    past.select(1, at).copy_(qkv.narrow(1, width, 2 * width));
    return attention_.attend(x, qkv.narrow(1, 0, width), past.narrow(1, 0, at + 1), {}, residual);
  });
  if (cross_)
    stream.branch(norm2_, 0, name_, [&](const Tensor& x, const Tensor& residual, LayerView*) {
      return cross_->attend(x, cross_->project(x), cache.context, cross, residual, split);
    });
  stream.branch(cross_ ? norm3_ : norm2_, 0, name_,
                [&](const Tensor& x, const Tensor& residual, LayerView*) { return ffn_.forward(x, {}, residual); });
}

bool Block::regularised() const { return attention_.regularised() || (cross_ && cross_->regularised()); }

Stack::Stack(const Builder& builder, const std::string& name, const std::vector<BlockConfig>& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) blocks_.emplace_back(builder.under(name + "." + std::to_string(i)), blocks[i]);
}

ResidualStream Stack::stream(const Tensor& x, const Offsets& offsets, const Forward& forward) const {
  return {x, blocks_[0].config().norm, blocks_[0].config().dropout, offsets, forward};
}

ResidualStream Stack::forward(const Tensor& x, const BlockContext& context, const Forward& forward, std::vector<Tensor>* outputs) const {
  ResidualStream all = stream(x, context.self, forward);
  for (const Block& block : blocks_) {
    if (block.config().gradient_checkpointing && !forward.views && at::GradMode::is_enabled())
      all = stream(checkpointed_block(block, all.value(), context, forward), context.self, forward);
    else
      add_regularised(forward, [&](const Forward& own) { block.forward(all, context, own); });
    if (outputs) outputs->push_back(all.value());
  }
  return all;
}

Tensor Stack::checkpointed_block(const Block& block, const Tensor& x, const BlockContext& context, const Forward& forward) const {
  // The block is run again in backward, when `forward` is gone: it gets a copy of everything, and leaves here what comes after it.
  struct Outcome {
    Noise noise;
    int64_t attentions = 0;
  };
  const Noise start = forward.noise ? *forward.noise : Noise(0);
  const auto outcome = std::make_shared<Outcome>(Outcome{start});
  const bool noisy = forward.noise;
  const std::optional<SequenceSplit> split = forward.sequence ? std::optional(*forward.sequence) : std::nullopt;
  const std::optional<double> margin = forward.regulariser ? std::optional(forward.regulariser->margin) : std::nullopt;
  const auto run = [this, &block, context, start, outcome, noisy, margin, split](const Tensors& inputs) -> Tensors {
    Noise noise = start;
    Regulariser regulariser{margin.value_or(0)};
    const Forward own{noisy ? &noise : nullptr, margin ? &regulariser : nullptr, nullptr, split ? &*split : nullptr};
    BlockContext with = context;
    if (inputs.size() > 1) with.context = inputs[1];
    ResidualStream through = stream(inputs[0], with.self, own);
    block.forward(through, with, own);
    *outcome = {noise, regulariser.attentions};
    if (!regulariser.sum.defined()) return {through.value()};
    return {through.value(), regulariser.sum};
  };
  Tensors inputs = {x};
  if (context.context.defined()) inputs.push_back(context.context);
  const Tensors outputs = checkpointed(run, inputs, block.parameters());
  if (forward.noise) *forward.noise = outcome->noise;
  if (outputs.size() > 1) add_to(*forward.regulariser, {*margin, outputs[1], outcome->attentions});
  return outputs[0];
}

bool Stack::regularised() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) { return block.regularised(); });
}

}  // namespace hinge::nn
