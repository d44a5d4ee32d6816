// Encoder-decoders whose tokens are split over ranks: the losses and gradients of one rank, in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <memory>
#include <utility>

#include "../nn/ranks.h"
#include "../support/errors.h"
#include "models/seq2seq.h"

namespace hinge::models {
namespace {

using at::Tensor;
using support::error_of;
using support::mentions;

Seq2SeqConfig small(const std::string& preset) {
  Seq2SeqConfig config;
  config.vocabulary = 17, config.width = 16, config.ffn.width = 20, config.heads = 2, config.depth = 2;
  config.max_length = 40, config.dropout = 0.2, config.ffn.dropout = 0.1, config.drop_path = 0.2;
  config.attention.preset = preset;
  return config;
}

std::unique_ptr<Seq2Seq> made(const Seq2SeqConfig& config) {
  auto model = std::make_unique<Seq2Seq>(config, 1);
  const at::NoGradGuard guard;
  at::manual_seed(5);
  for (const nn::Parameter& parameter : model->parameters().all()) {
    const Tensor value = parameter.value.detach();
    // Weights are not negative where there is a regulariser.
    parameter.value.set_data((value + (parameter.name.ends_with("gain") ? 0.2 : 0.3) * at::randn(value.sizes()).abs()).to(at::kDouble));
  }
  return model;
}

struct Text {
  std::vector<std::vector<int64_t>> source, target;
};
// Shorter and longer than there are ranks; and so short that some ranks have no source, or no target.
const std::vector<Text> kTexts = {
    {{{3, 5, 1, 16, 2}, {4}, {7, 7, 8, 2, 9, 9, 1, 3, 4, 11}}, {{0, 9, 3, 3}, {0, 5, 6, 7, 8, 9, 10}, {0}}},
    {{{4}}, {{0, 9, 3}}},
    {{{4, 6, 2, 1, 1}}, {{0}}},
};

struct Result {
  double loss = 0, regulariser = 0, nll = 0;
  int64_t tokens = 0, right = 0;
  std::vector<Tensor> gradients;
};

Result run(const Seq2Seq& model, const Text& text, bool regularised, nn::SequenceRanks* ranks) {
  const Sequences source = sequences_of(text.source), target = sequences_of(text.target);
  const Tensor labels = at::arange(target.tokens.numel(), at::kLong) % 17;
  const Seq2SeqLoss got = model.loss(source, target, labels,
                                     {.noise = 3, .regulariser = regularised, .label_smoothing = 0.1, .views = nullptr, .ranks = ranks});
  const double share = static_cast<double>(got.tokens) / static_cast<double>(labels.numel());
  std::vector<Tensor> values, losses = {got.loss}, weights = {at::scalar_tensor(share, at::kDouble)};
  if (regularised) losses.push_back(got.regulariser), weights.push_back(at::scalar_tensor(0.5, at::kDouble));
  for (const nn::Parameter& parameter : model.parameters().all()) values.push_back(parameter.value);
  return {share * got.loss.item<double>(),
          regularised ? got.regulariser.item<double>() : 0,
          got.nll,
          got.tokens,
          got.right,
          torch::autograd::grad(losses, values, weights, c10::nullopt, false, /*allow_unused=*/true)};
}

TEST(SplitSeq2Seq, HasTheLossAndGradientsOfOneRank) {
  struct Named {
    std::string name;
    Seq2SeqConfig config;
  };
  std::vector<Named> all;
  for (const char* preset : {"reluformer", "relu-vit", "softmax", "relu2", "linear"}) all.push_back({preset, small(preset)});
  all.push_back({"pre-norm, learned, checkpointing", small("reluformer")});
  Seq2SeqConfig& learned = all.back().config;
  learned.norm = nn::NormPlacement::pre, learned.gradient_checkpointing = true;
  learned.attention.learn_alpha = "head", learned.attention.learn_gain = "model", learned.attention.qk_norm = true;
  for (const auto& [name, config] : all)
    for (size_t run_number = 0; run_number < 4 * kTexts.size(); ++run_number) {
      const Text& text = kTexts[run_number / 4];
      const int count = static_cast<int>(run_number % 4) + 1;
      SCOPED_TRACE(name + ", text " + std::to_string(run_number / 4) + ", ranks " + std::to_string(count));
      const std::unique_ptr<Seq2Seq> model = made(config);
      const bool regularised = model->has_regulariser();
      const Result whole = run(*model, text, regularised, nullptr);
      std::vector<Result> parts(static_cast<size_t>(count));
      std::vector<std::unique_ptr<Seq2Seq>> models;  // as processes have them
      for (int rank = 0; rank < count; ++rank) models.push_back(made(config));
      nn::on_ranks(count, [&](nn::SequenceRanks& ranks) {
        const auto rank = static_cast<size_t>(ranks.rank());
        parts[rank] = run(*models[rank], text, regularised, &ranks);
      });
      Result sum;
      for (const Result& part : parts) {
        sum.loss += part.loss, sum.regulariser += part.regulariser, sum.nll += part.nll;
        sum.tokens += part.tokens, sum.right += part.right;
      }
      // Some thousand roundings through eight layers and their norms.
      const double eps = 1e4 * std::numeric_limits<double>::epsilon();
      EXPECT_NEAR(sum.loss, whole.loss, eps * std::abs(whole.loss));
      EXPECT_NEAR(sum.nll, whole.nll, eps * std::abs(whole.nll));
      EXPECT_NEAR(sum.regulariser, whole.regulariser, eps * std::max(1.0, std::abs(whole.regulariser)));
      EXPECT_EQ(sum.tokens, whole.tokens);
      EXPECT_EQ(sum.right, whole.right);
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        Tensor gradient;
        for (const Result& part : parts)
          if (part.gradients[i].defined()) gradient = gradient.defined() ? gradient + part.gradients[i] : part.gradients[i];
        ASSERT_EQ(gradient.defined(), whole.gradients[i].defined()) << model->parameters().all()[i].name;
        if (!gradient.defined()) continue;
        EXPECT_LE((gradient - whole.gradients[i]).abs().max().item<double>(),
                  10 * eps * std::max(1.0, whole.gradients[i].abs().max().item<double>()))
            << model->parameters().all()[i].name;
      }
    }
}

// Logits of three steps, whose rows end and multiply in between.
std::vector<Tensor> decoded(const Seq2Seq& model, const Text& text, nn::SequenceRanks* ranks) {
  const auto numbers = [](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); };
  const auto sentences = static_cast<int64_t>(text.source.size());
  KvCache cache = model.encode(sequences_of(text.source), ranks);
  std::vector<Tensor> logits = {model.step(at::zeros({sentences}, at::kLong), cache)};
  cache.reorder(numbers(sentences > 1 ? std::vector<int64_t>{0, 0, 2, 2} : std::vector<int64_t>{0, 0, 0, 0}));
  logits.push_back(model.step(numbers({3, 4, 5, 6}), cache));
  cache.reorder(numbers({1, 3, 2}));
  logits.push_back(model.step(numbers({9, 9, 2}), cache));
  return logits;
}

TEST(SplitSeq2Seq, DecodesLikeOneRank) {
  for (const char* preset : {"reluformer", "relu-vit", "softmax", "linear"})
    for (const Text& text : kTexts)
      for (const int count : {1, 2, 3, 4}) {
        SCOPED_TRACE(std::string(preset) + ", ranks " + std::to_string(count));
        const std::unique_ptr<Seq2Seq> model = made(small(preset));
        const std::vector<Tensor> whole = decoded(*model, text, nullptr);
        nn::on_ranks(count, [&](nn::SequenceRanks& ranks) {
          const std::vector<Tensor> own = decoded(*model, text, &ranks);
          for (size_t i = 0; i < whole.size(); ++i)
            EXPECT_LE((own[i] - whole[i]).abs().max().item<double>(), 1e-10 * std::max(1.0, whole[i].abs().max().item<double>())) << i;
        });
      }
}

TEST(SplitSeq2Seq, WhatCannotBeSplitIsAnErrorWithTheKey) {
  const auto refused = [](const std::function<void(Seq2SeqConfig&)>& change) {
    Seq2SeqConfig config = small("reluformer");
    change(config);
    return error_of([&] { require_splittable(resolved(config), 2); });
  };
  EXPECT_EQ(refused([](Seq2SeqConfig&) {}), "");
  EXPECT_TRUE(
      mentions(refused([](Seq2SeqConfig& config) { config.cross.attention.dropout = 0.1; }), {"model.cross.attention.dropout is 0.1"}));
  EXPECT_TRUE(mentions(refused([](Seq2SeqConfig& config) { config.encoder.attention.preset = "entmax15"; }),
                       {"model.encoder.attention.preset entmax15"}));
  EXPECT_TRUE(
      mentions(refused([](Seq2SeqConfig& config) { config.attention.preset = "sigmoid"; }), {"model.encoder.attention", "sigmoid"}));
}

}  // namespace
}  // namespace hinge::models
