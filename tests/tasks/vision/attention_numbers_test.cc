// The numbers of attention against the weights themselves, for every kind of attention.
#include "tasks/vision/attention_numbers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace hinge::vision {
namespace {

models::VitConfig two_blocks(const std::string& preset) {
  models::VitConfig config;
  config.image_size = 12, config.channels = 1, config.classes = 3, config.patch = 4, config.width = 16, config.depth = 2,
  config.ffn.width = 32, config.heads = 2, config.attention.preset = preset;
  return config;
}

at::Tensor some_images(int64_t n) { return at::sin(at::arange(144 * n, at::kFloat) * 0.37F).view({n, 12, 12, 1}); }

// From the weights of every query, one by one.
AttentionNumbers by_hand(const nn::AttentionView& view) {
  const at::Tensor weights = nn::attention_weights(view).to(at::kDouble).flatten(0, 2);  // [rows, keys]
  AttentionNumbers numbers;
  double counted = 0;
  for (const at::Tensor& row : weights.unbind(0)) {
    const double* w = row.data_ptr<double>();
    double sum = 0, entropy = 0;
    for (int64_t j = 0; j < row.numel(); ++j) sum += std::abs(w[j]), numbers.mass += w[j], numbers.zero_share += w[j] == 0;
    if (sum == 0) continue;
    ++counted;
    for (int64_t j = 0; j < row.numel(); ++j)
      if (w[j] != 0) entropy -= std::abs(w[j]) / sum * std::log(std::abs(w[j]) / sum);
    numbers.entropy += entropy;
  }
  numbers.mass /= static_cast<double>(weights.size(0));
  numbers.zero_share /= static_cast<double>(weights.numel());
  numbers.entropy = counted > 0 ? numbers.entropy / counted : 0;
  return numbers;
}

class Numbers : public testing::TestWithParam<std::string> {};

TEST_P(Numbers, EqualThoseOfTheWeights) {
  models::VitConfig config = two_blocks("relu-vit");
  const bool preset = GetParam() == "sparsemax" || GetParam() == "softmax";
  if (preset)
    config.attention.preset = GetParam();
  else
    config.attention.h = GetParam(), config.attention.bias = -0.3, config.attention.gain = -0.7;  // weights may be negative
  const models::Vit model(config, 3);
  models::VitViews views;
  const at::NoGradGuard guard;
  model.forward(some_images(3), /*noise=*/{}, &views);
  for (const nn::AttentionView& view : nn::attentions_of(views.layers)) {
    const AttentionNumbers got = attention_numbers(view), expected = by_hand(view);
    EXPECT_NEAR(got.mass, expected.mass, 1e-5 * std::max(1.0, std::abs(expected.mass)));
    EXPECT_NEAR(got.entropy, expected.entropy, 1e-5);
    EXPECT_NEAR(got.zero_share, expected.zero_share, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Numbers,
                         testing::Values("relu", "relu2", "relu6", "gelu", "gelu_tanh", "softplus", "identity", "sigmoid", "silu",
                                         "softmax", "sparsemax"));

TEST(AttentionStatistics, AreMeansOverImagesForEachBlock) {
  const models::Vit model(two_blocks("relu-vit"), 3);
  const at::Tensor images = some_images(11);  // more than are looked at together
  std::map<std::string, double> all, mean;
  for (const auto& [name, value] : attention_statistics(model, images)) all[name] = value;
  EXPECT_EQ(all.size(), 10U);
  for (int64_t i = 0; i < 11; ++i)
    for (const auto& [name, value] : attention_statistics(model, images.narrow(0, i, 1))) mean[name] += value / 11;
  for (const char* name : {"mass/0", "zeros/1", "variance/0", "variance/1"}) {
    EXPECT_NEAR(all[name], mean[name], 1e-6) << name;
    EXPECT_GT(all[name], 0) << name;
  }
  models::VitViews views;
  const at::NoGradGuard guard;
  model.forward(images, /*noise=*/{}, &views);
  EXPECT_EQ(views.layers[2].name, "blocks.1.attn");
  EXPECT_NEAR(all["variance/1"], views.layers[2].output.to(at::kDouble).var(2, false).mean().item<double>(), 1e-6);
}

}  // namespace
}  // namespace hinge::vision
