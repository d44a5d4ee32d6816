// Vision transformers whose tokens are split over ranks: the same logits and gradients as on one, up to rounding.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

#include "../nn/ranks.h"
#include "../support/errors.h"
#include "models/vit.h"

namespace hinge::models {
namespace {

using at::Tensor;
using support::error_of;
using support::mentions;

VitConfig small(const std::string& preset) {
  VitConfig config;
  config.image_size = 20, config.channels = 2, config.classes = 5, config.patch = 4;  // 25 tokens
  config.width = 32, config.depth = 2, config.heads = 2, config.ffn.width = 64;
  config.attention.preset = preset;
  return config;
}

struct Named {
  std::string name;
  VitConfig config;
};

std::vector<Named> configs() {
  std::vector<Named> all;
  const auto add = [&](const std::string& name, const std::string& preset, const auto& change) {
    Named one{name, small(preset)};
    change(one.config);
    all.push_back(one);
  };
  for (const char* preset : {"relu-vit", "softmax", "linear", "sigmoid"}) add(preset, preset, [](VitConfig&) {});
  for (const char* preset : {"relu-vit", "softmax"}) {
    const std::string name = preset;
    add(name + ", class token", preset, [](VitConfig& config) { config.pool = Pool::tok; });
    add(name + ", attention pooling", preset, [](VitConfig& config) { config.pool = Pool::map; });
  }
  add("mean first", "relu-vit", [](VitConfig& config) { config.pool_first = true, config.rep_size = 8; });
  add("post-norm, convolutions", "relu-vit", [](VitConfig& config) {
    config.norm = nn::NormPlacement::post, config.stem = Stem::conv;
    config.attention.qk_norm = false;
  });
  add("learned, gate, paths", "relu-vit", [](VitConfig& config) {
    config.attention.learn_alpha = "model", config.attention.learn_gain = "head", config.attention.learn_bias = "layer";
    config.attention.gate = "sigmoid", config.drop_path = 0.5;
  });
  // What is dropped does not depend on who has it.
  add("dropout", "relu-vit", [](VitConfig& config) { config.dropout = 0.3, config.ffn.dropout = 0.2, config.drop_path = 0.2; });
  add("dropout, post-norm, checkpointing", "softmax", [](VitConfig& config) {
    config.dropout = 0.3, config.ffn.dropout = 0.2, config.norm = nn::NormPlacement::post, config.gradient_checkpointing = true;
    config.pool = Pool::tok;
  });
  add("checkpointing", "relu-vit", [](VitConfig& config) { config.gradient_checkpointing = true; });
  add("fewer tokens than four ranks like", "relu-vit", [](VitConfig& config) { config.image_size = 8, config.pool = Pool::tok; });
  return all;
}

void randomise(const Vit& model) {
  const at::NoGradGuard guard;
  at::manual_seed(5);
  for (const nn::Parameter& parameter : model.parameters().all()) {
    Tensor value = parameter.value;
    value.add_(at::randn(value.sizes()) * 0.2);
  }
}

struct Result {
  Tensor logits;
  std::vector<Tensor> gradients;
};

Result run(const Vit& model, const Tensor& images, nn::SequenceRanks* ranks) {
  const Tensor logits = model.forward(images, 3, nullptr, ranks);
  const Tensor loss = (logits * at::arange(logits.numel(), at::kFloat).sin().view(logits.sizes())).sum();
  std::vector<Tensor> values;
  for (const nn::Parameter& parameter : model.parameters().all()) values.push_back(parameter.value);
  const Tensor part = at::scalar_tensor(1.0 / (ranks ? ranks->count() : 1), at::kFloat);
  return {logits.detach(), torch::autograd::grad({loss}, values, {part}, c10::nullopt, false, /*allow_unused=*/true)};
}

TEST(SplitVit, HasTheLogitsAndGradientsOfOneRank) {
  for (const Named& one : configs()) {
    const Vit model(one.config, 1);
    randomise(model);
    const Tensor images = at::randn({3, one.config.image_size, one.config.image_size, one.config.channels});
    const Result whole = run(model, images, nullptr);
    for (const int count : {1, 2, 3, 4}) {
      SCOPED_TRACE(one.name + ", ranks " + std::to_string(count));
      std::vector<Result> parts(static_cast<size_t>(count));
      std::vector<std::unique_ptr<Vit>> models;  // as processes have them
      for (int rank = 0; rank < count; ++rank) models.push_back(std::make_unique<Vit>(one.config, 1));
      for (const auto& copy : models) randomise(*copy);
      nn::on_ranks(count, [&](nn::SequenceRanks& ranks) {
        const auto rank = static_cast<size_t>(ranks.rank());
        parts[rank] = run(*models[rank], images, &ranks);
      });
      const double logit = whole.logits.abs().max().item<double>();
      for (const Result& part : parts) {
        EXPECT_LE((part.logits - whole.logits).abs().max().item<double>(), 2e-5 * std::max(1.0, logit));
        EXPECT_TRUE(at::equal(part.logits, parts[0].logits));  // a team agrees on the loss, bit for bit
      }
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        const Tensor& expected = whole.gradients[i];
        Tensor sum;
        for (const Result& part : parts)
          if (part.gradients[i].defined()) sum = sum.defined() ? sum + part.gradients[i] : part.gradients[i];
        ASSERT_EQ(sum.defined(), expected.defined()) << model.parameters().all()[i].name;
        if (!sum.defined()) continue;
        EXPECT_LE((sum - expected).abs().max().item<double>(), 5e-5 * std::max(1.0, expected.abs().max().item<double>()))
            << model.parameters().all()[i].name;
      }
    }
  }
}

TEST(SplitVit, WhatCannotBeSplitIsAnErrorWithTheKey) {
  const auto refused = [](const std::function<void(VitConfig&)>& change, int64_t ranks) {
    VitConfig config = small("relu-vit");
    change(config);
    return error_of([&] { require_splittable(resolved(config), ranks); });
  };
  EXPECT_TRUE(mentions(refused([](VitConfig& config) { config.attention.dropout = 0.1; }, 2),
                       {"model.attention.dropout is 0.1", "train.sequence_parallel"}));
  EXPECT_TRUE(mentions(refused([](VitConfig& config) { config.attention.preset = "entmax15"; }, 2), {"model.attention.preset entmax15"}));
  EXPECT_TRUE(mentions(refused([](VitConfig&) {}, 32), {"25 tokens", "train.sequence_parallel 32"}));
  EXPECT_EQ(refused([](VitConfig& config) { config.attention.dropout = 0.1; }, 1), "");
}

}  // namespace
}  // namespace hinge::models
