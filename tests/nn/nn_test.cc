// Modules by themselves: options by name, weights of an attention, noise that keeps expectations, parts made again in backward.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "../support/errors.h"
#include "nn/encoder_block.h"
#include "nn/recompute.h"
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
  torch::autograd::backward({first.sum()});
  EXPECT_TRUE(first.grad().defined());
  parameters.clear_gradients();
  EXPECT_FALSE(first.grad().defined());
}

// ---- options

TEST(AttentionConfig, PartsChangeThePreset) {
  AttentionConfig config;
  config.preset = "reluformer", config.gamma = 2;
  AttentionOptions options = attention_options(config);
  EXPECT_EQ(options.h, kernels::Activation::relu);
  EXPECT_EQ(options.length_rule, kernels::LengthRule::visible);
  EXPECT_DOUBLE_EQ(options.gain.values.item<double>(), std::sqrt(2.0) / 2);
  config.h = "gelu", config.alpha = 0.25, config.gain = 3, config.bias = -1, config.length = "fixed", config.length_n = 50;
  options = attention_options(config);
  EXPECT_EQ(options.h, kernels::Activation::gelu);
  EXPECT_EQ(options.length_rule, kernels::LengthRule::fixed);
  EXPECT_EQ(options.length_n, 50);
  EXPECT_EQ(options.alpha.values.item<double>(), 0.25);
  EXPECT_EQ(options.gain.values.item<double>(), 3);
  EXPECT_EQ(options.bias.values.item<double>(), -1);
  AttentionConfig sigmoid;
  sigmoid.preset = "sigmoid", sigmoid.h = "softmax";
  EXPECT_FALSE(attention_options(sigmoid).bias_log_n);
}

TEST(AttentionConfig, EveryLengthRuleCanBeSaid) {
  for (const std::string& name : length_rule_names()) {
    AttentionConfig config;
    config.preset = name == "visible" ? "relu-vit" : "reluformer";  // whose own rule is another
    support::override_config(config, "length=" + name);
    AttentionConfig again;
    support::read_config_text(again, support::write_config(config), "written");
    EXPECT_EQ(length_rule_name(attention_options(again).length_rule), name);
  }
  AttentionConfig config;
  support::override_config(config, "length=");
  EXPECT_EQ(attention_options(config).length_rule, preset("relu-vit").length_rule);
}

TEST(AttentionConfig, MistakesAreNamed) {
  const auto message = [](const auto& change) {
    AttentionConfig config;
    change(config);
    return error_of([&] { attention_options(config); });
  };
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "x"; }), {"attention.preset", "'x'", "relu-vit", "softmax"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.h = "x"; }), {"attention.h", "'x'", "gelu_tanh"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.length = "x"; }), {"attention.length", "'x'", "visible"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.gamma = 2; }), {"attention.gamma", "reluformer"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "softmax", c.learn_gain = true; }), {"softmax", "gain"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.h = "softmax", c.alpha = 1; }), {"softmax", "alpha"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "softmax", c.length = "none"; }), {"softmax", "length rule"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.length_n = 0; }), {"attention.length_n", "positive", "0"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.length_n = 5; }), {"attention.length_n", "length = fixed"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.preset = "reluformer", c.gamma = -1; }), {"attention.gamma", "positive", "-1"}));
  EXPECT_TRUE(mentions(message([](AttentionConfig& c) { c.alpha = std::nan(""); }), {"attention.alpha", "finite"}));
  EXPECT_TRUE(
      mentions(message([](AttentionConfig& c) { c.gain = std::numeric_limits<double>::infinity(); }), {"attention.gain", "finite"}));
  EXPECT_TRUE(
      mentions(message([](AttentionConfig& c) { c.bias = -std::numeric_limits<double>::infinity(); }), {"attention.bias", "finite"}));
  Parameters parameters;
  EXPECT_TRUE(mentions(error_of([&] { SelfAttention(builder_for(parameters), {}, 10, 3); }), {"width 10", "heads 3"}));
}

// ---- weights

TEST(AttentionWeights, AreThoseOfTheFormula) {
  at::manual_seed(2);
  const at::Tensor keys = at::randn({2, 3, 11, 4}), queries = at::randn({2, 3, 5, 4});
  const at::Tensor s = at::matmul(queries, keys.transpose(2, 3)) / 2;
  const auto expect = [&](const char* name, const AttentionOptions& options, const at::Tensor& expected) {
    const at::Tensor got = attention_weights({queries, keys, keys, options});
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

struct Block {
  Parameters parameters;
  std::unique_ptr<EncoderBlock> block;

  Block(double dropout, double drop_path, double weight_dropout, bool silent_attention, bool silent_feed_forward) {
    AttentionConfig attention;
    attention.dropout = weight_dropout;
    block = std::make_unique<EncoderBlock>(builder_for(parameters), BlockConfig{8, 12, 2, dropout, drop_path, false}, attention);
    if (silent_attention) set(parameters, "attn.proj.weight", at::zeros({1}));
    if (silent_feed_forward) set(parameters, "mlp.fc2.weight", at::zeros({1})), set(parameters, "mlp.fc2.bias", at::zeros({1}));
  }
};

// The same example many times, with one branch alone: what it adds.
struct Branches {
  at::Tensor noisy, quiet;  // [examples, 3, 8] and [1, 3, 8]
};
Branches branches_of(const Block& block, int64_t examples) {
  at::manual_seed(4);
  const at::NoGradGuard guard;
  const at::Tensor one = at::randn({1, 3, 8}), many = one.repeat({examples, 1, 1});
  return {block.block->forward(many, /*training=*/true) - many, block.block->forward(one, /*training=*/false) - one};
}

TEST(DropPath, KeepsABranchWholeOrNotAtAll) {
  constexpr int64_t examples = 4000;
  constexpr double rate = 0.25;
  for (const bool first : {false, true}) {
    const Branches got = branches_of(Block(0, rate, 0, !first, first), examples);
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
    double dropout, weight_dropout;
    bool silent_attention;
  };
  for (const Kind& kind : {Kind{"after attention", 0.2, 0, false}, Kind{"in and after feed-forward", 0.2, 0, true},
                           Kind{"of attention weights", 0, 0.2, false}}) {
    const Branches got = branches_of(Block(kind.dropout, 0, kind.weight_dropout, kind.silent_attention, !kind.silent_attention), examples);
    const at::Tensor mean = got.noisy.to(at::kDouble).mean(0), deviation = got.noisy.to(at::kDouble).std(0) / std::sqrt(1.0 * examples);
    EXPECT_GT(deviation.min().item<double>(), 1e-5) << kind.name << ": nothing was dropped";
    // 24 means, each within 5 of its deviations: all of them in all but one of 70,000 draws.
    EXPECT_LE(((mean - got.quiet[0]) / deviation).abs().max().item<double>(), 5) << kind.name;
  }
}

// ---- recompute

TEST(Recompute, GivesTheSameGradientsAndRandomNumbers) {
  const at::Tensor weight = at::randn({4, 4}).requires_grad_(true), x = at::randn({3, 4}).requires_grad_(true);
  int calls = 0;
  const auto f = [&](const at::Tensor& input) { return ++calls, at::dropout(at::tanh(at::matmul(input, weight)), 0.5, true); };
  const auto gradients = [&](bool again) {
    at::manual_seed(3);
    const at::Tensor y = again ? recomputed(f, x, {weight}) : f(x);
    return torch::autograd::grad({y.square().sum()}, {x, weight});
  };
  const auto plain = gradients(false);
  EXPECT_EQ(calls, 1);
  const auto again = gradients(true);
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(at::equal(plain[0], again[0]));
  EXPECT_TRUE(at::equal(plain[1], again[1]));
}

}  // namespace
}  // namespace hinge::nn
