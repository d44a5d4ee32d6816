// Modules by themselves: options by name, weights of an attention, noise that keeps expectations, the residual stream, gradient
// checkpointing.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "../support/errors.h"
#include "nn/block.h"
#include "nn/gradient_checkpointing.h"
#include "support/config.h"

namespace hinge::nn {
namespace {

using support::error_of;
using support::mentions;

Builder builder_for(Parameters& parameters) { return {parameters, at::make_generator<at::CPUGeneratorImpl>(1)}; }

void set(const Parameters& parameters, const std::string& name, const at::Tensor& value) {
  const at::NoGradGuard guard;
  const Parameter* parameter = parameters.find(name);
  ASSERT_NE(parameter, nullptr) << name;
  parameter->value.copy_(value.expand_as(parameter->value));
}

// ---- parameters

TEST(Parameters, AreAnOrderedListWithoutDoubles) {
  Parameters parameters;
  const Builder builder = builder_for(parameters).under("a").under("b");
  const at::Tensor first = builder.constant("w", {2, 3}, 7), second = builder.xavier("k", 4, 5);
  EXPECT_TRUE(first.requires_grad());
  ASSERT_EQ(parameters.all().size(), 2u);
  EXPECT_EQ(parameters.all()[0].name, "a.b.w");
  EXPECT_EQ(parameters.all()[1].name, "a.b.k");
  EXPECT_FALSE(parameters.all()[0].decays);
  EXPECT_TRUE(parameters.all()[1].decays);
  EXPECT_EQ(parameters.count(), 26);
  EXPECT_EQ(parameters.find("a.b.w")->value.data_ptr(), first.data_ptr());
  EXPECT_EQ(parameters.find("w"), nullptr);
  EXPECT_THROW(builder.constant("w", {1}, 0), c10::Error);
}

// ---- options

AttentionConfig of_preset(const std::string& preset) {
  AttentionConfig config;
  config.preset = preset;
  return config;
}

AttentionOptions engine_options(const AttentionConfig& config) { return attention_options(config, "attention").attention; }

TEST(AttentionConfig, PartsChangeThePreset) {
  AttentionConfig config = of_preset("reluformer");
  config.gamma = 2;
  AttentionOptions options = engine_options(config);
  EXPECT_EQ(options.h, kernels::Activation::relu);
  EXPECT_EQ(options.length_rule, kernels::LengthRule::visible);
  EXPECT_DOUBLE_EQ(options.gain.values.item<double>(), std::sqrt(2.0) / 2);
  config.h = "gelu", config.alpha = 0.25, config.gain = 3, config.bias = -1, config.length = "fixed", config.length_n = 50;
  options = engine_options(config);
  EXPECT_EQ(options.h, kernels::Activation::gelu);
  EXPECT_EQ(options.length_rule, kernels::LengthRule::fixed);
  EXPECT_EQ(options.length_n, 50);
  EXPECT_EQ(options.alpha.values.item<double>(), 0.25);
  EXPECT_EQ(options.gain.values.item<double>(), 3);
  EXPECT_EQ(options.bias.values.item<double>(), -1);
  AttentionConfig sigmoid = of_preset("sigmoid");
  sigmoid.h = "softmax";
  EXPECT_FALSE(engine_options(sigmoid).bias_log_n);
}

TEST(AttentionConfig, EveryLengthRuleCanBeSaid) {
  for (const std::string& name : length_rule_names()) {
    AttentionConfig config = of_preset(name == "visible" ? "relu-vit" : "reluformer");  // whose own rule is another
    support::override_config(config, "length=" + name);
    AttentionConfig again;
    support::read_config_text(again, support::write_config(config), "written");
    EXPECT_EQ(length_rule_name(engine_options(again).length_rule), name);
  }
  AttentionConfig config = of_preset("relu-vit");
  support::override_config(config, "length=");
  EXPECT_EQ(engine_options(config).length_rule, preset("relu-vit").length_rule);
}

TEST(AttentionConfig, ADecoderCountsVisibleKeys) {
  EXPECT_EQ(attention_options(of_preset("relu2"), "attention", /*causal=*/true).attention.length_rule, kernels::LengthRule::visible);
  EXPECT_EQ(attention_options(of_preset("relu2"), "attention").attention.length_rule, kernels::LengthRule::keys);
  AttentionConfig config = of_preset("relu2");
  config.length = "keys";
  EXPECT_TRUE(mentions(error_of([&] { attention_options(config, "model.decoder.attention", true); }),
                       {"model.decoder.attention.length", "visible"}));
}

TEST(AttentionConfig, OverridesKeepWhatEveryPresetHas) {
  AttentionConfig base = of_preset("reluformer");
  AttentionOverride own;
  base.gamma = 4, base.dropout = 0.1, base.qk_norm = true, base.gain = 3, base.learn_gain = "layer";
  base.gate = "sigmoid";
  own.dropout = 0.2;
  AttentionConfig both = overridden(base, own);
  EXPECT_EQ(both.preset, "reluformer");
  EXPECT_EQ(both.gamma, 4);
  EXPECT_EQ(both.dropout, 0.2);
  EXPECT_EQ(both.learn_gain, "layer");
  EXPECT_EQ(both.gate, "sigmoid");
  own.preset = "softmax";
  both = overridden(base, own);
  EXPECT_EQ(both.preset, "softmax");
  EXPECT_EQ(both.gain, std::nullopt);
  EXPECT_EQ(both.learn_gain, "");
  EXPECT_EQ(both.gate, "sigmoid");
  EXPECT_EQ(both.qk_norm, true);
  EXPECT_EQ(error_of([&] { attention_options(both, "attention"); }), "");
  own.preset = "reluformer";  // the base's own: the meaning of a key does not depend on another's value
  EXPECT_EQ(overridden(base, own).learn_gain, "");
  own.preset.clear(), own.length = "visible";
  base.length = "fixed", base.length_n = 50;
  EXPECT_EQ(overridden(base, own).length_n, std::nullopt) << "length and length_n go together";
  own.length.clear();
  EXPECT_EQ(overridden(base, own).length_n, 50);
  EXPECT_TRUE(
      mentions(support::describe_config(own), {"instead of model.attention.h (one of relu", "instead of model.attention.preset; if"}));
}

TEST(AttentionConfig, MistakesAreNamed) {
  const auto message = [](const auto& change) {
    AttentionConfig config = of_preset("relu-vit");
    change(config);
    return error_of([&] { attention_options(config, "attention"); });
  };
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "x"; }), {"attention.preset", "'x'", "relu-vit", "softmax", "rela"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.h = "x"; }), {"attention.h", "'x'", "gelu_tanh"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.length = "x"; }), {"attention.length", "'x'", "visible"}));
  EXPECT_EQ(message([](AttentionConfig& c) { c.gamma = 2; }), "");  // only the preset reluformer has one
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.gamma = -2; }), {"attention.gamma", "positive", "-2"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "softmax", c.learn_gain = "head"; }), {"softmax", "learn_gain"}));
  EXPECT_EQ(message([](AttentionConfig& c) { c.preset = "softmax", c.learn_gain = "none"; }), "");
  EXPECT_TRUE(
      mentions(message([](AttentionConfig& c) { c.learn_alpha = "x"; }), {"attention.learn_alpha", "'x'", "none, model, layer, head"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.gate = "x"; }), {"attention.gate", "'x'", "none, linear, sigmoid"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.h = "softmax", c.alpha = 1; }), {"softmax", "alpha"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "softmax", c.length = "none"; }), {"softmax", "length rule"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "sparsemax", c.alpha = 1, c.h = "relu"; }), {"sparsemax", "alpha, h"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.length_n = 0; }), {"attention.length_n", "positive", "0"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.length_n = 5; }), {"attention.length_n", "length = fixed"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "reluformer", c.gamma = -1; }), {"attention.gamma", "positive", "-1"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.alpha = std::nan(""); }), {"attention.alpha", "finite"}));
  EXPECT_TRUE(
      mentions(message([](AttentionConfig& c) { c.gain = std::numeric_limits<double>::infinity(); }), {"attention.gain", "finite"}));
  EXPECT_TRUE(
      mentions(message([](AttentionConfig& c) { c.bias = -std::numeric_limits<double>::infinity(); }), {"attention.bias", "finite"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.dropout = 1; }), {"attention.dropout", "[0, 1)"}));
  Parameters parameters;
  EXPECT_TRUE(mentions(error_of([&] { Attention(builder_for(parameters), of_preset("softmax"), "attention", 10, 3, Attention::To::self); }),
                       {"width 10", "heads 3"}));
}

// ---- weights

TEST(AttentionWeights, AreThoseOfTheFormula) {
  at::manual_seed(2);
  const at::Tensor keys = at::randn({2, 3, 11, 4}), queries = at::randn({2, 3, 5, 4});
  const at::Tensor s = at::matmul(queries, keys.transpose(2, 3)) / 2;
  const auto expect = [&](const char* name, const AttentionOptions& options, const at::Tensor& expected) {
    const at::Tensor got = attention_weights({queries, keys, keys, {.attention = options}});
    ASSERT_EQ(got.sizes(), expected.sizes()) << name;
    // A score is a sum of 4 products of numbers up to about 3; h is as steep as 2 |s| at most.
    EXPECT_LE((got - expected).abs().max().item<double>(), 64 * 0x1p-24 * std::max(1.0, expected.abs().max().item<double>())) << name;
  };
  for (const std::string& name : preset_names()) {
    const at::Tensor relu = at::relu(s), expected = name == "relu-vit"     ? relu / 11
                                                    : name == "reluformer" ? relu * std::sqrt(2.0 / 11)
                                                    : name == "relu2"      ? relu * relu / 11
                                                    : name == "sigmoid"    ? at::sigmoid(s - std::log(11.0))
                                                    : name == "silu"       ? s * at::sigmoid(s) / 11
                                                    : name == "linear"     ? s / 11
                                                                           : at::softmax(s, -1);
    expect(name.c_str(), preset(name), expected);
  }
  AttentionOptions options;
  options.alpha = 0.5, options.gain = at::tensor({1.0, 2.0, 3.0}), options.bias = at::tensor({0.5, 0.0, -0.5});
  const at::Tensor gain = at::tensor({1.0, 2.0, 3.0}).view({3, 1, 1}), bias = at::tensor({0.5, 0.0, -0.5}).view({3, 1, 1});
  expect("per head", options, (gain * at::relu(s + bias) / std::sqrt(11.0)).to(at::kFloat));
}

// ---- noise

struct OneBlock {
  Parameters parameters;
  std::unique_ptr<Stack> stack;

  OneBlock(const BlockConfig& given, bool silent_attention, bool silent_feed_forward) {
    BlockConfig config = given;
    config.width = 8, config.heads = 2, config.ffn.width = 12, config.ffn.activation = "gelu", config.attention_key = "attention";
    config.attention.preset = "relu-vit", config.attention.qk_norm = true;
    stack = std::make_unique<Stack>(builder_for(parameters), "blocks", std::vector<BlockConfig>{config});
    if (silent_attention) set(parameters, "blocks.0.attn.proj.weight", at::zeros({1}));
    if (silent_feed_forward)
      set(parameters, "blocks.0.mlp.fc2.weight", at::zeros({1})), set(parameters, "blocks.0.mlp.fc2.bias", at::zeros({1}));
  }

  at::Tensor run(const at::Tensor& x, bool training, const Offsets& offsets = {}) const {
    Noise noise(5);
    const Forward forward{training ? &noise : nullptr, nullptr, nullptr};
    return stack->forward(x, {.self = offsets}, forward).value();
  }
};

// The same example many times, with one branch alone: what it adds.
struct Branches {
  at::Tensor noisy, quiet;  // [examples, 3, 8] and [1, 3, 8]
};
Branches branches_of(const OneBlock& block, int64_t examples, bool jagged = false) {
  at::manual_seed(4);
  const at::NoGradGuard guard;
  const at::Tensor one = at::randn({1, 3, 8}), many = one.repeat({examples, 1, 1});
  const at::Tensor offsets = jagged ? at::arange(0, 3 * (examples + 1), 3, at::kLong) : at::Tensor();
  const at::Tensor noisy = block.run(jagged ? many.flatten(0, 1) : many, /*training=*/true, {offsets, offsets}).view_as(many);
  return {noisy - many, block.run(one, /*training=*/false) - one};
}

BlockConfig noisy_block(double dropout, double drop_path, double weight_dropout, double ffn_dropout) {
  BlockConfig config;
  config.dropout = dropout, config.drop_path = drop_path, config.attention.dropout = weight_dropout, config.ffn.dropout = ffn_dropout;
  return config;
}

TEST(DropPath, KeepsABranchWholeOrNotAtAll) {
  constexpr int64_t examples = 4000;
  constexpr double rate = 0.25;
  for (const bool first : {false, true})
    for (const bool jagged : {false, true}) {
      const Branches got = branches_of(OneBlock(noisy_block(0, rate, 0, 0), !first, first), examples, jagged);
      const at::Tensor kept = got.noisy.abs().amax(at::IntArrayRef{1, 2}) > 0;
      // A kept branch counts for 1 / (1 - rate) of itself; the sum with x costs a rounding of x.
      const at::Tensor expected = got.quiet / (1 - rate) * kept.view({-1, 1, 1});
      EXPECT_LE((got.noisy - expected).abs().max().item<double>(), 2e-6);
      EXPECT_GT(got.quiet.abs().max().item<double>(), 0.1);
      const double share = kept.to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(share, 1 - rate, 4 * std::sqrt(rate * (1 - rate) / examples)) << "the share that is kept, 4 deviations allowed";
    }
}

TEST(Dropout, KeepsExpectations) {
  constexpr int64_t examples = 8000;
  struct Kind {
    const char* name;
    double dropout, weight_dropout, ffn_dropout;
    bool silent_attention;
  };
  for (const Kind& kind : {Kind{"after attention", 0.2, 0, 0, false}, Kind{"in and after feed-forward", 0.2, 0, 0.2, true},
                           Kind{"in feed-forward", 0, 0, 0.2, true}, Kind{"of attention weights", 0, 0.2, 0, false}}) {
    const BlockConfig config = noisy_block(kind.dropout, 0, kind.weight_dropout, kind.ffn_dropout);
    const Branches got = branches_of(OneBlock(config, kind.silent_attention, !kind.silent_attention), examples);
    const at::Tensor mean = got.noisy.to(at::kDouble).mean(0), deviation = got.noisy.to(at::kDouble).std(0) / std::sqrt(1.0 * examples);
    EXPECT_GT(deviation.min().item<double>(), 1e-5) << kind.name << ": nothing was dropped";
    // 24 means, each within 5 of its deviations: all of them in all but one of 70,000 draws.
    EXPECT_LE(((mean - got.quiet[0]) / deviation).abs().max().item<double>(), 5) << kind.name;
  }
}

// ---- the residual stream

// Pre-norm and post-norm as their formulas have them, whichever way the sums are fused.
TEST(ResidualStream, FollowsItsFormulas) {
  at::manual_seed(6);
  Parameters parameters;
  const Builder builder = builder_for(parameters);
  const Norm first(builder, "first", 8), second(builder, "second", 8), last(builder, "last", 8);
  for (const Norm* norm : {&first, &second, &last}) {
    const at::NoGradGuard guard;
    norm->weight.uniform_(0.5, 1.5), norm->bias.uniform_(-0.5, 0.5);
  }
  const at::Tensor x = at::randn({1, 3, 8});
  const auto f = [](const at::Tensor& y) { return at::tanh(y * 1.5); };
  const auto layer = [&](const at::Tensor& input, const at::Tensor& residual, LayerView*) {
    return residual.defined() ? f(input) + residual : f(input);
  };
  // Without noise the layer adds the residual itself; with a probability of dropping that never comes true the sum waits for the next norm.
  std::vector<LayerView> views;
  for (const bool viewed : {false, true})
    for (const double drop_path : {0.0, 1e-12}) {
      Noise noise(1);
      const Forward forward{drop_path > 0 ? &noise : nullptr, nullptr, viewed ? &views : nullptr};
      const auto stream_of = [&](NormPlacement placement) {
        ResidualStream stream(x, placement, 0, {}, forward);
        stream.branch(first, drop_path, "first", layer);
        stream.branch(second, drop_path, "second", layer);
        return stream;
      };
      const at::Tensor a = x + f(first(x)), pre = a + f(second(a)), b = first(x + f(x)), post = second(b + f(b));
      EXPECT_TRUE(at::allclose(stream_of(NormPlacement::pre).value(), pre, 1e-5, 1e-6));
      EXPECT_TRUE(at::allclose(stream_of(NormPlacement::pre).finish(last), last(pre), 1e-5, 1e-6));
      EXPECT_TRUE(at::allclose(stream_of(NormPlacement::post).value(), post, 1e-5, 1e-6));
      EXPECT_TRUE(at::equal(stream_of(NormPlacement::post).value(), stream_of(NormPlacement::post).finish(last)));
    }
  ASSERT_EQ(views.size(), 20u);
  EXPECT_EQ(views[1].name, "second");
  EXPECT_TRUE(at::equal(views[0].residual, x));
  EXPECT_TRUE(at::allclose(views[1].residual, x + f(first(x)), 1e-5, 1e-6));
  for (const size_t at : {size_t{0}, size_t{10}}) EXPECT_TRUE(at::allclose(views[at].output, f(first(x)), 1e-5, 1e-6)) << at;
}

// Gradients of a noisy stack against differences: the noise of a seed is a constant.
TEST(Stack, GradientsOfANoisyPassAreThoseOfTheFunction) {
  for (const NormPlacement placement : {NormPlacement::pre, NormPlacement::post})
    for (const char* preset : {"relu-vit", "entmax15", "rela"})
      for (const bool jagged : {false, true}) {
        Parameters parameters;
        BlockConfig config = noisy_block(0.2, 0.3, 0.2, 0.2);
        config.width = 6, config.heads = 2, config.ffn.width = 5, config.ffn.activation = "gelu", config.norm = placement;
        config.attention.preset = preset, config.attention.qk_norm = true;
        const Stack stack(builder_for(parameters), "blocks", {config, config});
        at::manual_seed(2);
        std::vector<at::Tensor> inputs = {at::randn({3, 4, 6}, at::kDouble).requires_grad_(true)};
        for (const Parameter& parameter : parameters.all()) {
          parameter.value.set_data(parameter.value.detach().to(at::kDouble) + 0.3 * at::randn(parameter.value.sizes(), at::kDouble));
          inputs.push_back(parameter.value);
        }
        const at::Tensor offsets = jagged ? at::arange(0, 16, 4, at::kLong) : at::Tensor();
        const at::Tensor weights = at::randn({3, 4, 6}, at::kDouble);
        const auto value = [&] {
          Noise noise(7);
          const Forward forward{&noise, nullptr, nullptr};
          const at::Tensor x = jagged ? inputs[0].flatten(0, 1) : inputs[0];
          return (stack.forward(x, {.self = {offsets, offsets}}, forward).value().view({3, 4, 6}) * weights).sum();
        };
        const auto gradients = torch::autograd::grad({value()}, inputs, {}, c10::nullopt, false, /*allow_unused=*/true);
        const at::NoGradGuard guard;
        for (size_t i = 0; i < inputs.size(); ++i) {
          const at::Tensor start = inputs[i].detach().clone(), direction = at::randn(start.sizes(), at::kDouble);
          const auto at_step = [&](double step) { return inputs[i].copy_(start + step * direction), value().item<double>(); };
          const double slope = (at_step(1e-6) - at_step(-1e-6)) / 2e-6;
          inputs[i].copy_(start);
          EXPECT_NEAR((gradients[i] * direction).sum().item<double>(), slope, 2e-5 * std::max(1.0, std::abs(slope)))
              << preset << (jagged ? " jagged " : " batched ") << (i ? parameters.all()[i - 1].name : "x");
        }
      }
}

// ---- gradient checkpointing

TEST(GradientCheckpointing, GivesTheSameGradients) {
  at::manual_seed(3);
  const at::Tensor weight = at::randn({4, 4}).requires_grad_(true), x = at::randn({3, 4}).requires_grad_(true),
                   y = at::randn({3, 4}).requires_grad_(true);
  int calls = 0;
  const auto f = [&](const Tensors& in) -> Tensors { return ++calls, Tensors{at::tanh(at::matmul(in[0], weight)) * in[1], in[1].sum()}; };
  for (const bool both : {false, true}) {
    calls = 0;
    const auto gradients = [&](bool again) {
      const Tensors out = again ? checkpointed(f, {x, y}, {weight}) : f({x, y});
      const at::Tensor loss = both ? out[0].square().sum() + 3 * out[1] : out[0].square().sum();
      return torch::autograd::grad({loss}, {x, y, weight});
    };
    const auto plain = gradients(false);
    EXPECT_EQ(calls, 1);
    const auto again = gradients(true);
    EXPECT_EQ(calls, 3);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
  }
}

// Bit for bit, with everything that is random, pre-norm and post-norm, with a context and the regulariser.
TEST(GradientCheckpointing, OfBlocksChangesNoBit) {
  for (const NormPlacement placement : {NormPlacement::pre, NormPlacement::post}) {
    std::vector<at::Tensor> results[2];
    for (const bool checkpointing : {false, true}) {
      Parameters parameters;
      BlockConfig config = noisy_block(0.1, 0.2, 0.1, 0.1);
      config.width = 8, config.heads = 2, config.ffn.width = 12, config.norm = placement, config.causal = true;
      config.attention.preset = "reluformer";
      config.cross = config.attention;
      config.gradient_checkpointing = checkpointing;
      const Stack stack(builder_for(parameters), "decoder", {config, config, config});
      at::manual_seed(1);
      const at::Tensor x = at::randn({7, 8}).requires_grad_(true), context = at::randn({5, 8}).requires_grad_(true);
      const at::Tensor q = at::tensor({0, 3, 7}, at::kLong), k = at::tensor({0, 4, 5}, at::kLong);
      Noise noise(9);
      Regulariser regulariser{0.3};
      const Forward forward{&noise, &regulariser, nullptr};
      const at::Tensor y = stack.forward(x, {{q, q}, context, {q, k}}, forward).value();
      EXPECT_EQ(regulariser.attentions, 6);
      torch::autograd::backward({y.square().sum() + regulariser.sum});
      results[checkpointing] = {y.detach(), regulariser.sum.detach(), x.grad(), context.grad(), at::tensor({noise.next()}, at::kLong)};
      for (const Parameter& parameter : parameters.all()) results[checkpointing].push_back(parameter.value.grad());
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    // The gradient of the context is a sum over blocks, which autograd may add in another order.
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_TRUE(i == 3 ? at::allclose(results[0][i], results[1][i], 1e-5, 1e-6) : at::equal(results[0][i], results[1][i])) << i;
  }
}

}  // namespace
}  // namespace hinge::nn
