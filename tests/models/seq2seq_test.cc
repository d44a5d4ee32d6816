// The encoder-decoder model: values and gradients against its definition in float64, sentences alone and together, decoding step by step
// against the whole pass, noise, views, sizes and mistakes.
#include "models/seq2seq.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "../support/errors.h"
#include "hinge/ops/sequence.h"
#include "plain_seq2seq.h"

namespace hinge::models {
namespace {

using support::error_of;
using support::mentions;

Seq2SeqConfig small() {
  Seq2SeqConfig config;
  config.vocabulary = 17, config.width = 12, config.ffn.width = 20, config.heads = 2, config.depth = 2;
  config.max_length = 40, config.dropout = 0;
  return config;
}

const std::pair<const char*, nn::NormPlacement> kNorms[] = {{"pre", nn::NormPlacement::pre}, {"post", nn::NormPlacement::post}};

void attend_by(Seq2SeqConfig& config, const std::string& preset) { config.attention.preset = preset; }

// Numbers in the place of the initial ones, many of which are 0 or 1 and would hide mistakes.
void randomise(const Seq2Seq& model, double spread = 0.4) {
  const at::NoGradGuard guard;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    const bool near_one = parameter.name.find("norm") != std::string::npos && parameter.name.ends_with("weight");
    const bool gain = parameter.name.ends_with("gain");  // the regulariser is that of weights that are not negative
    const at::Tensor noise = at::randn(parameter.value.sizes()) * spread;
    parameter.value.copy_(gain ? 1 + noise.abs() : near_one ? 1 + noise : noise);
  }
}

void make_double(const Seq2Seq& model) {
  for (const nn::Parameter& parameter : model.parameters().all()) parameter.value.set_data(parameter.value.detach().to(at::kDouble));
}

const TokenRows kSource = {{3, 5, 1, 16, 2}, {4}, {7, 7, 8, 2}}, kTarget = {{0, 9, 3, 3}, {0, 5, 6, 7, 8, 9, 10}, {0}};

at::Tensor labels_for(const TokenRows& target) {
  std::vector<int64_t> labels;
  for (const auto& row : target)
    for (size_t i = 0; i < row.size(); ++i) labels.push_back(i + 1 < row.size() ? row[i + 1] : 1);
  return at::tensor(labels, at::kLong);
}

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }
double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return largest(a.to(at::kDouble) - b.to(at::kDouble));
}

// ---- values and gradients

struct Case {
  std::string name;
  Seq2SeqConfig config;
};
void PrintTo(const Case& given, std::ostream* out) { *out << given.name; }

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, const auto& change) {
    std::replace(name.begin(), name.end(), '-', '_');
    all.push_back({name, small()});
    change(all.back().config);
  };
  for (const std::string& preset : nn::attention_presets()) {
    add(preset, [&](Seq2SeqConfig& c) { attend_by(c, preset); });
    add(preset + "_pre", [&](Seq2SeqConfig& c) { attend_by(c, preset), c.norm = nn::NormPlacement::pre; });
    add(preset + "_normed_keys", [&](Seq2SeqConfig& c) {
      attend_by(c, preset);
      c.attention.qk_norm = true;
    });
    if (preset != "softmax" && preset != "sparsemax" && preset != "entmax15" && preset != "rela")
      add(preset + "_learned", [&](Seq2SeqConfig& c) {
        attend_by(c, preset);
        c.attention.learn_alpha = c.attention.learn_gain = c.attention.learn_bias = "head";
      });
  }
  for (const char* activation : {"relu", "gelu", "softmax", "softmax_norm"})
    for (const auto& [word, norm] : kNorms)
      add(std::string("ffn_") + activation + "_" + word,
          [&, norm = norm](Seq2SeqConfig& c) { c.ffn.activation = activation, c.norm = norm; });
  add("mixed", [](Seq2SeqConfig& c) {
    c.encoder.attention.preset = "entmax15", c.decoder.attention.preset = "softmax", c.cross.attention.preset = "reluformer";
    c.attention.gamma = 1.7;
  });
  add("untied", [](Seq2SeqConfig& c) { c.tied = false; });
  add("learned_positions", [](Seq2SeqConfig& c) { c.position = nn::Position::learned; });
  for (const char* gate : {"linear", "sigmoid"}) add(std::string("gate_") + gate, [&](Seq2SeqConfig& c) { c.attention.gate = gate; });
  add("learned_by_the_model", [](Seq2SeqConfig& c) { c.attention.preset = "relu-vit", c.attention.learn_alpha = "model"; });
  add("depths",
      [](Seq2SeqConfig& c) { c.encoder.depth = 1, c.decoder.depth = 3, c.attention.preset = "reluformer", c.attention.gamma = 0.6; });
  add("one_head", [](Seq2SeqConfig& c) { c.heads = 1, c.attention.preset = "reluformer"; });
  return all;
}

class AgainstPlain : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, AgainstPlain, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST_P(AgainstPlain, Aten) {
  at::manual_seed(5);
  const Seq2SeqConfig& config = GetParam().config;
  const Seq2Seq model(config, 3);
  randomise(model);
  make_double(model);
  const NamedTensors leaves = leaves_of(model.parameters(), at::kDouble);
  const Sequences source = sequences_of(kSource), target = sequences_of(kTarget);
  Seq2SeqOptions options;
  options.regulariser = model.has_regulariser();
  options.noise = 1;  // without any dropout
  const Seq2SeqOutput got = model.forward(source, target, options);
  const auto [logits, regulariser] = PlainSeq2Seq(config, leaves).forward(kSource, kTarget);
  // Sums of a few dozen products, and norms after each branch that may divide by a small deviation.
  const double eps = 1e-11;
  EXPECT_LT(largest_difference(got.logits, logits), eps * largest(logits));
  ASSERT_EQ(got.regulariser.defined(), regulariser.defined());
  if (regulariser.defined()) {
    EXPECT_NEAR(got.regulariser.item<double>(), regulariser.item<double>(), eps);
  }

  const at::Tensor weights = at::randn(logits.sizes(), at::kDouble);
  const auto total = [&](const at::Tensor& l, const at::Tensor& r) {
    return r.defined() ? (l * weights).sum() + 5 * r : (l * weights).sum();
  };
  torch::autograd::backward({total(got.logits, got.regulariser)});
  torch::autograd::backward({total(logits, regulariser)});
  double size = 0;
  for (const auto& [name, leaf] : leaves) size = std::max(size, largest(leaf.grad()));
  for (const nn::Parameter& parameter : model.parameters().all()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    EXPECT_LT(largest_difference(parameter.value.grad(), leaves.at(parameter.name).grad()), eps * size) << parameter.name;
  }
}

// float32 is float64 rounded, here and there: not much more wrong than ATen in float32.
TEST(Seq2Seq, Float32IsAsGoodAsPlainFloat32) {
  for (const char* preset : {"softmax", "reluformer", "entmax15"})
    for (const auto& [word, norm] : kNorms) {
      at::manual_seed(9);
      Seq2SeqConfig config = small();
      attend_by(config, preset);
      config.norm = norm, config.width = 64, config.ffn.width = 100, config.heads = 4;
      const Seq2Seq model(config, 3);
      const NamedTensors single = leaves_of(model.parameters(), at::kFloat), exact = leaves_of(model.parameters(), at::kDouble);
      const Sequences source = sequences_of(kSource), target = sequences_of(kTarget);
      const at::Tensor got = model.forward(source, target).logits, plain = PlainSeq2Seq(config, single).forward(kSource, kTarget).first,
                       expected = PlainSeq2Seq(config, exact).forward(kSource, kTarget).first;
      EXPECT_LE(largest_difference(got, expected), 3 * largest_difference(plain, expected) + 16 * 0x1p-24 * largest(expected))
          << preset << word;
      const auto gradients = [](const at::Tensor& logits, const at::Tensor& of) {
        return torch::autograd::grad({logits.square().mean()}, {of})[0];
      };
      const at::Tensor dgot = gradients(got, model.parameters().find("embedding.weight")->value);
      const at::Tensor dplain = gradients(plain, single.at("embedding.weight")), dexact = gradients(expected, exact.at("embedding.weight"));
      EXPECT_LE(largest_difference(dgot, dexact), 4 * largest_difference(dplain, dexact) + 64 * 0x1p-24 * largest(dexact))
          << preset << word;
    }
}

TEST(Seq2Seq, LossIsTheSmoothedCrossEntropyOfTheLogits) {
  Seq2SeqConfig config = small();
  config.attention.preset = "reluformer";
  const Seq2Seq model(config, 3);
  randomise(model);
  make_double(model);
  const Sequences source = sequences_of(kSource), target = sequences_of(kTarget);
  const at::Tensor labels = labels_for(kTarget);
  Seq2SeqOptions options;
  options.label_smoothing = 0.1, options.regulariser = true;
  const Seq2SeqLoss got = model.loss(source, target, labels, options);
  const Seq2SeqOutput whole = model.forward(source, target, options);
  const at::Tensor log = at::log_softmax(whole.logits, 1), nll = -log.gather(1, labels.unsqueeze(1)).squeeze(1);
  const at::Tensor expected = (0.9 * nll - 0.1 * log.mean(1)).mean();
  EXPECT_NEAR(got.loss.item<double>(), expected.item<double>(), 1e-12);
  EXPECT_NEAR(got.nll, nll.sum().item<double>(), 1e-10);
  EXPECT_EQ(got.tokens, 12);
  EXPECT_EQ(got.right, (whole.logits.argmax(1) == labels).sum().item<int64_t>());
  EXPECT_NEAR(got.regulariser.item<double>(), whole.regulariser.item<double>(), 1e-12);
  std::vector<at::Tensor> leaves;
  for (const nn::Parameter& parameter : model.parameters().all()) leaves.push_back(parameter.value);
  const auto a = torch::autograd::grad({got.loss * 3}, leaves), b = torch::autograd::grad({expected * 3}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(largest_difference(a[i], b[i]), 1e-12) << model.parameters().all()[i].name;
}

// ---- sentences and their company

class EveryPreset : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Presets, EveryPreset, testing::ValuesIn(nn::attention_presets()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

Seq2SeqConfig with_preset(const std::string& preset, nn::NormPlacement norm) {
  Seq2SeqConfig config = small();
  attend_by(config, preset);
  config.norm = norm, config.width = 32, config.ffn.width = 48, config.heads = 4;
  return config;
}

// Products of other numbers of rows may be summed in another order: a few roundings, which norms may enlarge.
constexpr double kRoundings = 200 * 0x1p-24;

TEST_P(EveryPreset, SentencesDoNotKnowTheirBatch) {
  at::manual_seed(4);
  for (const auto& [word, norm] : kNorms) {
    const Seq2Seq model(with_preset(GetParam(), norm), 3);
    const at::NoGradGuard guard;
    const at::Tensor together = model.forward(sequences_of(kSource), sequences_of(kTarget)).logits;
    int64_t first = 0;
    for (size_t s = 0; s < kSource.size(); ++s) {
      const at::Tensor alone = model.forward(sequences_of({kSource[s]}), sequences_of({kTarget[s]})).logits;
      EXPECT_LE(largest_difference(alone, together.narrow(0, first, alone.size(0))), kRoundings * largest(alone))
          << word << " sentence " << s;
      first += alone.size(0);
    }
  }
}

// ---- decoding

TEST_P(EveryPreset, StepsGiveWhatTheWholePassGives) {
  at::manual_seed(6);
  for (const auto& [word, norm] : kNorms)
    for (const bool everything : {false, true}) {
      Seq2SeqConfig config = with_preset(GetParam(), norm);
      if (everything) {
        config.position = nn::Position::learned, config.tied = false, config.ffn.activation = "softmax_norm";
        config.attention.qk_norm = true, config.attention.gate = "sigmoid";
      }
      const Seq2Seq model(config, 3);
      // Longer than the room that the state starts with.
      TokenRows target(3);
      for (auto& row : target)
        for (int i = 0; i < 19; ++i) row.push_back(at::randint(17, {1}).item<int64_t>());
      const at::NoGradGuard guard;
      const at::Tensor whole = model.forward(sequences_of(kSource), sequences_of(target)).logits.view({3, 19, -1});
      KvCache state = model.encode(sequences_of(kSource));
      EXPECT_EQ(state.rows(), 3);
      for (size_t t = 0; t < 19; ++t) {
        const at::Tensor got = model.step(at::tensor({target[0][t], target[1][t], target[2][t]}, at::kLong), state);
        EXPECT_LE(largest_difference(got, whole.select(1, static_cast<int64_t>(t))), kRoundings * largest(whole)) << word << " step " << t;
      }
      EXPECT_EQ(state.length(), 19);
    }
}

// The kernels take keys in blocks of 128 and 256; documents have more.
TEST_P(EveryPreset, StepsOfLongSequencesToo) {
  at::manual_seed(7);
  constexpr int64_t kLength = 300;
  Seq2SeqConfig config = with_preset(GetParam(), nn::NormPlacement::pre);
  config.max_length = kLength;
  const Seq2Seq model(config, 3);
  TokenRows source(2), target(2);
  for (size_t row = 0; row < 2; ++row)
    for (int64_t i = 0; i < kLength; ++i) {
      if (row == 0 || i < 270) source[row].push_back(at::randint(17, {1}).item<int64_t>());
      target[row].push_back(at::randint(17, {1}).item<int64_t>());
    }
  const at::NoGradGuard guard;
  const at::Tensor whole = model.forward(sequences_of(source), sequences_of(target)).logits.view({2, kLength, -1});
  KvCache state = model.encode(sequences_of(source));
  for (int64_t t = 0; t < kLength; ++t) {
    const auto at = static_cast<size_t>(t);
    const at::Tensor got = model.step(at::tensor({target[0][at], target[1][at]}, at::kLong), state);
    ASSERT_LE(largest_difference(got, whole.select(1, t)), kRoundings * largest(whole)) << "step " << t;
  }
}

TEST(Decoding, BeamsMultiplyMoveAndEnd) {
  at::manual_seed(8);
  for (const char* preset : {"softmax", "reluformer", "sparsemax"}) {
    const Seq2Seq model(with_preset(preset, nn::NormPlacement::post), 3);
    const at::NoGradGuard guard;
    KvCache state = model.encode(sequences_of(kSource));
    // Beside the state, what each row holds.
    struct Row {
      int64_t sentence;
      std::vector<int64_t> tokens;
    };
    std::vector<Row> rows = {{0, {}}, {1, {}}, {2, {}}};
    for (int t = 0; t < 25; ++t) {
      std::vector<int64_t> tokens, indices;
      for (Row& row : rows) tokens.push_back(at::randint(17, {1}).item<int64_t>()), row.tokens.push_back(tokens.back());
      const at::Tensor got = model.step(at::tensor(tokens, at::kLong), state);
      for (size_t i = 0; i < rows.size(); ++i) {
        const at::Tensor whole =
            model.forward(sequences_of({kSource[static_cast<size_t>(rows[i].sentence)]}), sequences_of({rows[i].tokens})).logits;
        const at::Tensor expected = whole[t];
        ASSERT_LE(largest_difference(got[static_cast<int64_t>(i)], expected), kRoundings * largest(expected))
            << preset << " step " << t << " row " << i;
      }
      // New rows: up to four for each sentence, drawn from its own; sentence 1 ends at step 10 and the others change their number.
      std::vector<Row> next;
      for (int64_t sentence = 0; sentence < 3; ++sentence) {
        std::vector<int64_t> own;
        for (size_t i = 0; i < rows.size(); ++i)
          if (rows[i].sentence == sentence) own.push_back(static_cast<int64_t>(i));
        if (own.empty() || (sentence == 1 && t >= 10)) continue;
        const int64_t count = 1 + at::randint(4, {1}).item<int64_t>();
        for (int64_t n = 0; n < count; ++n) {
          const int64_t from = own[static_cast<size_t>(at::randint(static_cast<int64_t>(own.size()), {1}).item<int64_t>())];
          indices.push_back(from), next.push_back(rows[static_cast<size_t>(from)]);
        }
      }
      state.reorder(at::tensor(indices, at::kLong));
      rows = next;
      ASSERT_EQ(state.rows(), static_cast<int64_t>(rows.size()));
      for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(state.sentences()[i], rows[i].sentence);
    }
  }
}

TEST(Decoding, BeamsBeforeTheFirstStep) {
  const Seq2Seq model(with_preset("reluformer", nn::NormPlacement::pre), 3);
  const at::NoGradGuard guard;
  KvCache many = model.encode(sequences_of(kSource)), one = model.encode(sequences_of(kSource));
  many.reorder(at::tensor({0, 0, 2}, at::kLong));
  const at::Tensor a = model.step(at::tensor({0, 3, 0}, at::kLong), many), b = model.step(at::tensor({0, 0, 0}, at::kLong), one);
  EXPECT_LE(largest_difference(a[0], b[0]), kRoundings * largest(b));
  EXPECT_LE(largest_difference(a[2], b[2]), kRoundings * largest(b));
  EXPECT_GT(largest_difference(a[1], b[0]), 0.1);
}

TEST(Decoding, MistakesAreNamed) {
  Seq2SeqConfig config = small();
  config.max_length = 5;
  const Seq2Seq model(config, 3);
  KvCache state = model.encode(sequences_of(kSource));
  const at::Tensor tokens = at::tensor({0, 0, 0}, at::kLong);
  EXPECT_TRUE(mentions(error_of([&] { model.step(at::tensor({0}, at::kLong), state); }), {"one token", "3 rows"}));
  EXPECT_TRUE(mentions(error_of([&] { state.reorder(at::tensor({0, 3}, at::kLong)); }), {"no row 3", "3 rows"}));
  EXPECT_TRUE(mentions(error_of([&] { state.reorder(at::tensor({1, 0}, at::kLong)); }), {"order of sentences"}));
  for (int i = 0; i < 5; ++i) model.step(tokens, state);
  EXPECT_TRUE(mentions(error_of([&] { model.step(tokens, state); }), {"model.max_length 5"}));
}

// ---- noise

Seq2SeqConfig noisy() {
  Seq2SeqConfig config = small();
  config.dropout = 0.2, config.drop_path = 0.2, config.ffn.dropout = 0.1, config.attention.dropout = 0.15,
  config.attention.preset = "reluformer";
  return config;
}

TEST(Seq2Seq, NoiseIsThatOfTheSeedAndOffInEvaluation) {
  const Seq2Seq model(noisy(), 3), quiet(small(), 3);
  const Sequences source = sequences_of(kSource), target = sequences_of(kTarget);
  Seq2SeqOptions training;
  const auto results = [&](uint64_t seed) {
    training.noise = seed;
    for (const nn::Parameter& parameter : model.parameters().all()) parameter.value.mutable_grad().reset();
    const at::Tensor loss = model.loss(source, target, labels_for(kTarget), training).loss;
    torch::autograd::backward({loss});
    std::vector<at::Tensor> all = {loss.detach()};
    for (const nn::Parameter& parameter : model.parameters().all()) all.push_back(parameter.value.grad().clone());
    return all;
  };
  const auto first = results(1), again = results(1), other = results(2);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], again[i])) << i;
  EXPECT_FALSE(at::equal(first[0], other[0]));
  Seq2SeqConfig still = noisy();
  still.dropout = still.drop_path = still.ffn.dropout = 0, still.attention.dropout = 0;
  const Seq2Seq same(still, 3);
  EXPECT_TRUE(at::equal(model.forward(source, target).logits, same.forward(source, target, training).logits));
  EXPECT_FALSE(at::equal(model.forward(source, target).logits, model.forward(source, target, training).logits));
}

TEST(Seq2Seq, GradientCheckpointingChangesNothing) {
  std::vector<at::Tensor> results[2];
  for (const bool checkpointing : {false, true}) {
    Seq2SeqConfig config = noisy();
    config.gradient_checkpointing = checkpointing;
    const Seq2Seq model(config, 3);
    Seq2SeqOptions training;
    training.noise = 1, training.regulariser = true;
    const Seq2SeqLoss loss = model.loss(sequences_of(kSource), sequences_of(kTarget), labels_for(kTarget), training);
    torch::autograd::backward({loss.loss + loss.regulariser});
    results[checkpointing] = {loss.loss.detach(), loss.regulariser.detach()};
    for (const nn::Parameter& parameter : model.parameters().all()) results[checkpointing].push_back(parameter.value.grad());
  }
  for (size_t i = 0; i < results[0].size(); ++i)
    // The encoder's result has a gradient from every block of the decoder, which autograd may add in another order.
    EXPECT_TRUE(i < 2 ? at::equal(results[0][i], results[1][i]) : at::allclose(results[0][i], results[1][i], 1e-4, 1e-6)) << i;
}

// Gradients of a noisy pass against differences: the noise of a seed is a constant.
TEST(Seq2Seq, GradientsOfANoisyPassAreThoseOfTheFunction) {
  for (const auto& [word, norm] : kNorms)
    for (const char* activation : {"relu", "gelu", "softmax", "softmax_norm"}) {
      Seq2SeqConfig config = noisy();
      config.norm = norm, config.ffn.activation = activation, config.depth = 1;
      config.cross.attention.preset = "entmax15", config.decoder.attention.preset = "softmax";
      const Seq2Seq model(config, 3);
      at::manual_seed(2);
      randomise(model);
      make_double(model);
      Seq2SeqOptions training;
      training.noise = 7, training.regulariser = true, training.label_smoothing = 0.1;
      const auto value = [&] {
        const Seq2SeqLoss loss = model.loss(sequences_of(kSource), sequences_of(kTarget), labels_for(kTarget), training);
        return loss.loss + loss.regulariser;
      };
      torch::autograd::backward({value()});
      const at::NoGradGuard guard;
      for (const nn::Parameter& parameter : model.parameters().all()) {
        const at::Tensor direction = at::randn(parameter.value.sizes(), at::kDouble), start = parameter.value.detach().clone();
        const auto at_step = [&](double step) {
          parameter.value.copy_(start + step * direction);
          return value().item<double>();
        };
        const double slope = (at_step(1e-6) - at_step(-1e-6)) / 2e-6;
        parameter.value.copy_(start);
        EXPECT_NEAR((parameter.value.grad() * direction).sum().item<double>(), slope, 2e-7 * std::max(1.0, std::abs(slope)))
            << activation << " " << parameter.name;
      }
    }
}

// ---- views

TEST(Seq2Seq, ShowsWhatIsInside) {
  Seq2SeqConfig config = small();
  config.encoder.attention.preset = "entmax15", config.decoder.attention.preset = "reluformer", config.cross.attention.preset = "rela";
  config.norm = nn::NormPlacement::pre;
  const Seq2Seq model(config, 3);
  at::manual_seed(3);
  randomise(model);
  const Sequences source = sequences_of(kSource), target = sequences_of(kTarget);
  const at::NoGradGuard guard;
  Seq2SeqViews views;
  Seq2SeqOptions options;
  options.views = &views;
  const at::Tensor logits = model.forward(source, target, options).logits;
  EXPECT_TRUE(at::equal(logits, model.forward(source, target).logits)) << "looking changes the result";
  std::vector<std::string> names;
  for (const nn::LayerView& view : views.layers) names.push_back(view.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"encoder.0.attn", "encoder.0.mlp", "encoder.1.attn", "encoder.1.mlp", "decoder.0.attn",
                                      "decoder.0.cross_attn", "decoder.0.mlp", "decoder.1.attn", "decoder.1.cross_attn", "decoder.1.mlp"}));
  EXPECT_EQ(views.encoder.sizes(), (std::vector<int64_t>{10, 12}));
  EXPECT_EQ(views.decoder.sizes(), (std::vector<int64_t>{12, 12}));
  // The stream of a pre-norm decoder is the sum of what its layers added.
  EXPECT_LE(largest_difference(views.layers[4].residual + views.layers[4].output, views.layers[5].residual), 1e-5);

  const nn::LayerView &self = views.layers[4], &cross = views.layers[5], &ffn = views.layers[6], &encoder = views.layers[0];
  const at::Tensor w = nn::attention_weights(*self.attention);
  ASSERT_EQ(w.sizes(), (std::vector<int64_t>{1, 2, 12, 12}));
  const at::Tensor s = at::matmul(self.attention->q, self.attention->k.transpose(2, 3)) / std::sqrt(6.0);
  EXPECT_NEAR(w[0][1][3][2].item<double>(), std::max(0.0, s[0][1][3][2].item<double>()) * std::sqrt(2.0 / 4), 1e-5);
  EXPECT_EQ(w.narrow(2, 0, 4).narrow(3, 4, 8).abs().max().item<double>(), 0) << "a sentence sees another one";
  EXPECT_EQ(w[0].triu(1).abs().max().item<double>(), 0) << "a token sees the future";
  EXPECT_EQ(nn::attention_weights(*cross.attention).sizes(), (std::vector<int64_t>{1, 2, 12, 10}));
  EXPECT_LE(largest_difference(nn::attention_weights(*encoder.attention).sum(-1), at::ones({1, 2, 10})), 1e-5);
  EXPECT_EQ(nn::hidden_units(*ffn.ffn).sizes(), (std::vector<int64_t>{12, 20}));
  const at::Tensor bias = model.parameters().find("decoder.0.mlp.fc2.bias")->value;
  EXPECT_LE(largest_difference(at::matmul(nn::hidden_units(*ffn.ffn), ffn.ffn->values) + bias, ffn.output), 1e-5);
  EXPECT_FALSE(ffn.attention.has_value());
}

// ---- sizes

TEST(Seq2Seq, ParametersAreThoseOfTheTransformer) {
  Seq2SeqConfig config;
  config.size = "iwslt", config.vocabulary = 10000;
  const int64_t C = 512, W = 1024, V = 10000, attention = 4 * (C * C + C), ffn = 2 * C * W + W + C, norm = 2 * C;
  const int64_t layers = 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm);
  EXPECT_EQ(Seq2Seq(config, 0).parameters().count(), layers + V * C);
  config.norm = nn::NormPlacement::pre;
  EXPECT_EQ(Seq2Seq(config, 0).parameters().count(), layers + V * C + 2 * norm);
  config.size = "tiny", config.norm = nn::NormPlacement::post, config.tied = false, config.position = nn::Position::learned;
  config.max_length = 50, config.ffn.activation = "softmax_norm", config.attention.preset = "rela";
  const int64_t c = 128, w = 256, a = 4 * (c * c + c) + c, f = 2 * c * w + w + 2 * c;
  EXPECT_EQ(Seq2Seq(config, 0).parameters().count(), 4 * (a + f + 4 * c) + 4 * (2 * a + f + 6 * c) + 3 * V * c + 2 * 50 * c);
  const Seq2Seq model(small(), 0);
  for (const nn::Parameter& parameter : model.parameters().all())
    EXPECT_EQ(parameter.decays, parameter.name.ends_with("weight") && parameter.name.find("norm") == std::string::npos &&
                                    parameter.name.find("embedding") == std::string::npos)
        << parameter.name;
}

TEST(Seq2Seq, StartsWithUnitVariance) {
  Seq2SeqConfig config = small();
  config.width = 128, config.vocabulary = 500, config.ffn.width = 256;
  const Seq2Seq model(config, 1), same(config, 1), other(config, 2);
  const auto get = [](const Seq2Seq& m, const char* name) { return m.parameters().find(name)->value.detach(); };
  EXPECT_NEAR(get(model, "embedding.weight").std().item<double>() * std::sqrt(128.0), 1, 0.02);
  EXPECT_NEAR(largest(get(model, "encoder.0.attn.qkv.weight")), std::sqrt(6.0 / 256), 1e-3);
  EXPECT_NEAR(largest(get(model, "decoder.1.cross_attn.kv.weight")), std::sqrt(6.0 / 256), 1e-3);
  EXPECT_NEAR(largest(get(model, "decoder.1.mlp.fc1.weight")), std::sqrt(6.0 / 384), 1e-3);
  EXPECT_EQ(largest(get(model, "decoder.1.mlp.fc1.bias")), 0);
  EXPECT_TRUE(at::equal(get(model, "embedding.weight"), get(same, "embedding.weight")));
  EXPECT_FALSE(at::equal(get(model, "embedding.weight"), get(other, "embedding.weight")));
}

TEST(Seq2Seq, FlopsAreThoseOfTheProducts) {
  Seq2SeqConfig config = small();  // width 12, ffn 20, vocabulary 17, 2 + 2 layers
  config.cross.attention.gate = "linear";
  // 3 source tokens, 2 target tokens that see 1 and 2
  EXPECT_EQ(Seq2Seq(config, 0).flops({3}, {2}),
            2.0 * (2 * (3 * 4 * 144 + 2 * 9 * 12 + 3 * 2 * 240) +
                   2 * (2 * 4 * 144 + 2 * 3 * 12 + 2 * 3 * 144 + 3 * 2 * 144 + 2 * 6 * 12 + 2 * 2 * 240) + 2 * 12 * 17));
}

TEST(SinusoidalPositions, AreTheFormula) {
  const at::Tensor got = nn::sinusoidal_positions(7, 6);
  for (int64_t t = 0; t < 7; ++t)
    for (int64_t c = 0; c < 6; ++c) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(c - c % 2) / 6);
      EXPECT_NEAR(got[t][c].item<double>(), c % 2 ? std::cos(angle) : std::sin(angle), 1e-7);
    }
}

// ---- mistakes

TEST(Seq2SeqConfig, MistakesAreNamed) {
  const auto message = [](const auto& change) {
    Seq2SeqConfig config = small();
    change(config);
    return error_of([&] { resolved(config); });
  };
  EXPECT_EQ(message([](Seq2SeqConfig&) {}), "");
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.size = "huge"; }), {"model.size", "'huge'", "iwslt"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.vocabulary = 0; }), {"model.vocabulary", "at least 1", "0"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.ffn.width = -3; }), {"model.ffn.width", "-3"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.decoder.depth = 0; }), {"model.decoder.depth"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.heads = 5; }), {"model.width 12", "model.heads 5"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.width = 9, c.heads = 3; }), {"sinusoidal", "even", "9"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.dropout = 1; }), {"model.dropout", "[0, 1)"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.ffn.dropout = -1; }), {"model.ffn.dropout", "-1"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.attention.dropout = 2; }), {"model.attention.dropout", "2"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.ffn.activation = "x"; }), {"model.ffn.activation", "'x'", "softmax_norm"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.cross.attention.preset = "x"; }),
                       {"model.cross.attention.preset", "'x'", "entmax15", "reluformer"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.decoder.attention.preset = "relu2", c.decoder.attention.h = "x"; }),
                       {"model.decoder.attention.h", "'x'", "gelu"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.decoder.attention.preset = "relu-vit", c.decoder.attention.length = "keys"; }),
                       {"model.decoder.attention.length", "visible"}));
  EXPECT_TRUE(mentions(message([](Seq2SeqConfig& c) { c.cross.attention.preset = "sparsemax", c.cross.attention.alpha = 1; }),
                       {"model.cross.attention", "sparsemax", "alpha"}));

  Seq2SeqConfig config;
  config.size = "base", config.vocabulary = 5;
  config = resolved(config);
  const auto sizes = [](const Seq2SeqConfig& c) {
    return std::vector<int64_t>{*c.width, *c.ffn.width, *c.heads, c.encoder_depth(), c.decoder_depth()};
  };
  EXPECT_EQ(sizes(config), (std::vector<int64_t>{512, 2048, 8, 6, 6}));
  EXPECT_EQ(sizes(resolved(config)), sizes(config)) << "a resolved configuration changed when it was resolved again";
  Seq2SeqConfig plain;
  plain.vocabulary = 5, plain.ffn.width = 7;
  EXPECT_EQ(sizes(resolved(plain)), (std::vector<int64_t>{512, 7, 4, 6, 6}));

  // What is given beside a size is not passed over, be it what holds without a size.
  Seq2SeqConfig both;
  both.size = "tiny", both.vocabulary = 5, both.width = 256;
  EXPECT_TRUE(mentions(error_of([&] { resolved(both); }), {"model.width 256", "model.size tiny", "128"}));
  both.width = 128, both.heads = 8;
  EXPECT_TRUE(mentions(error_of([&] { resolved(both); }), {"model.heads 8", "model.size tiny"}));
  both.heads.reset(), both.ffn.width = 1024;  // the feed-forward width alone may be another
  EXPECT_EQ(sizes(resolved(both))[1], 1024);
}

// A file with a gamma trains the baseline, too: --set model.attention.preset=softmax.
TEST(Seq2SeqConfig, AttentionsThatHaveNoGammaPassItOver) {
  Seq2SeqConfig config = small();
  config.attention.gamma = 4;
  EXPECT_EQ(error_of([&] { resolved(config); }), "");
  config.decoder.attention.preset = "reluformer";
  EXPECT_EQ(config.decoder_attention().gamma, 4);
}

TEST(Seq2SeqConfig, AnAttentionsOwnKeysComeFirst) {
  Seq2SeqConfig config = small();
  config.attention.preset = "reluformer", config.attention.gamma = 2, config.attention.dropout = 0.25;
  config.encoder.attention.gamma = 1, config.decoder.attention.dropout = 0, config.cross.attention.preset = "softmax";
  config = resolved(config);
  EXPECT_EQ(config.encoder_attention().preset, "reluformer");
  EXPECT_EQ(config.encoder_attention().gamma, 1);
  EXPECT_EQ(config.encoder_attention().dropout, 0.25);
  EXPECT_EQ(config.decoder_attention().gamma, 2);
  EXPECT_EQ(config.decoder_attention().dropout, 0);
  EXPECT_EQ(config.cross_attention().preset, "softmax");
  EXPECT_EQ(config.cross_attention().dropout, 0.25);
  EXPECT_TRUE(config.encoder.attention.preset.empty()) << "a run's config would hide that model.attention is meant";
  const auto options = attention_options(config);
  ASSERT_EQ(options.size(), 3u);
  EXPECT_EQ(options[1].first, "decoder");
  EXPECT_TRUE(options[1].second.attention.causal);
}

TEST(Seq2Seq, BadBatchesAreNamed) {
  const Seq2Seq model(small(), 0);
  const auto message = [&](const TokenRows& source, const TokenRows& target) {
    return error_of([&] { model.forward(sequences_of(source), sequences_of(target)); });
  };
  EXPECT_EQ(message(kSource, kTarget), "");
  EXPECT_TRUE(mentions(message({{1}}, {{1}, {2}}), {"1 source", "2 target"}));
  EXPECT_TRUE(mentions(message({{1, 17}}, {{1}}), {"source", "[0, 17)", "got 17"}));
  EXPECT_TRUE(mentions(message({{1}}, {{-2}}), {"target", "got -2"}));
  EXPECT_TRUE(mentions(message({{1}, {}}, {{1}, {2}}), {"source", "sequence 1", "no tokens"}));
  EXPECT_TRUE(mentions(message({{1}}, {std::vector<int64_t>(41, 3)}), {"target", "41 tokens", "model.max_length 40"}));
  Seq2SeqOptions options;
  options.regulariser = true;
  EXPECT_TRUE(mentions(error_of([&] { model.forward(sequences_of(kSource), sequences_of(kTarget), options); }), {"regulariser", "relu"}));
  EXPECT_FALSE(model.has_regulariser());
}

}  // namespace
}  // namespace hinge::models
