// The search with a real model, small and with random weights: what its cache, its reordered and shrinking batches give is what the whole
// model gives. And texts through a vocabulary, group by group.
#include "decode/translator.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "../ops/threads.h"
#include "number_words.h"

namespace hinge::decode {
namespace {

constexpr int32_t kBos = 1, kEos = 2;

models::Seq2SeqConfig small_model(const std::string& attention, int64_t vocabulary) {
  models::Seq2SeqConfig config;
  config.vocabulary = vocabulary, config.width = 32, config.ffn.width = 48, config.heads = 4, config.depth = 2;
  config.norm = nn::NormPlacement::pre, config.attention.preset = attention, config.max_length = 40;
  return config;
}

// Weights that make up their minds: random ones as they are give all tokens much the same probability.
void sharpen(const models::Seq2Seq& model) {
  const at::NoGradGuard guard;
  for (const auto& parameter : model.parameters().all())
    if (parameter.name == "embedding.weight") parameter.value.mul_(3);
}

std::vector<Source> random_sources(int64_t vocabulary, const std::vector<size_t>& lengths) {
  std::mt19937 random(3);
  std::vector<Source> sources;
  for (const size_t length : lengths) {
    Source source;
    for (size_t i = 0; i + 1 < length; ++i) source.push_back(static_cast<int32_t>(3 + random() % static_cast<uint32_t>(vocabulary - 3)));
    source.push_back(kEos);
    sources.push_back(std::move(source));
  }
  return sources;
}

double log_probability(const models::Seq2Seq& model, const Source& source, const Hypothesis& hypothesis) {
  const at::NoGradGuard guard;
  std::vector<int64_t> read = {kBos}, written(hypothesis.tokens.begin(), hypothesis.tokens.end());
  read.insert(read.end(), written.begin(), written.end());
  written.push_back(kEos);
  const models::Seq2SeqOutput output = model.forward(models::sequences_of({{source.begin(), source.end()}}), models::sequences_of({read}));
  const at::Tensor log_p = at::log_softmax(output.logits.to(at::kDouble), 1);
  double sum = 0;
  for (size_t t = 0; t < written.size(); ++t) sum += log_p[static_cast<int64_t>(t)][written[t]].item<double>();
  return sum;
}

class WithAttention : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Presets, WithAttention, testing::Values("softmax", "reluformer", "sigmoid", "entmax15"));

TEST_P(WithAttention, ABatchGivesWhatTheWholeModelGives) {
  const int64_t vocabulary = 60;
  const models::Seq2Seq model(small_model(GetParam(), vocabulary), 5);
  sharpen(model);
  const std::vector<size_t> lengths = {12, 3, 30, 7, 7, 1, 19};
  const std::vector<Source> sources = random_sources(vocabulary, lengths);
  SearchProblem problem{vocabulary, kBos, kEos, {0, kBos}, {}};
  for (const size_t length : lengths) problem.longest.push_back(static_cast<int64_t>(length) + 5);
  for (const int64_t beam : {1, 4}) {
    SearchOptions options;
    options.beam = options.n_best = beam;
    const auto together = decode_batch(model, sources, problem, options);
    ASSERT_EQ(together.size(), sources.size());
    for (size_t i = 0; i < sources.size(); ++i) {
      SearchProblem single = problem;
      single.longest = {problem.longest[i]};
      const auto alone = decode_batch(model, {sources[i]}, single, options).at(0);
      ASSERT_EQ(together[i].size(), static_cast<size_t>(beam));
      ASSERT_EQ(alone.size(), together[i].size());
      for (size_t n = 0; n < alone.size(); ++n) {
        EXPECT_EQ(together[i][n].tokens, alone[n].tokens) << "sentence " << i << ", place " << n;
        EXPECT_NEAR(together[i][n].score, alone[n].score, 1e-4);
        // Up to 35 tokens, each with a rounding of float32 behind a few layers.
        EXPECT_NEAR(together[i][n].log_probability, log_probability(model, sources[i], together[i][n]), 1e-3);
      }
    }
  }
}

// ---- the cache

// Presets with all that can be learned or set beside them.
models::Seq2SeqConfig rich_model(const std::string& attention) {
  models::Seq2SeqConfig config = small_model(attention, 30);
  const bool sparse = attention == "sparsemax" || attention == "entmax15" || attention == "rela";
  config.attention.gate = "linear", config.attention.gamma = 1.7;
  config.attention.learn_alpha = config.attention.learn_gain = config.attention.learn_bias =
      sparse || attention == "softmax" ? "none" : "head";
  config.encoder.attention.qk_norm = config.decoder.attention.qk_norm = true;
  return config;
}

// Other numbers than those that they begin with, many of which are 0 or 1 and would hide mistakes: biases, norms, and alpha, gain and bias
// of each head.
void randomise_vectors(const models::Seq2Seq& model) {
  const at::NoGradGuard guard;
  for (const nn::Parameter& parameter : model.parameters().all())
    if (parameter.value.dim() == 1) parameter.value.add_(at::randn(parameter.value.sizes()), 0.2);
}

at::Tensor tokens_of(const std::vector<std::vector<int64_t>>& rows, size_t place) {
  std::vector<int64_t> tokens;
  for (const std::vector<int64_t>& row : rows) tokens.push_back(row[place]);
  return at::tensor(tokens, at::kLong);
}

class WithCache : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Presets, WithCache, testing::ValuesIn(nn::attention_presets()), [](const auto& given) {
  std::string name = given.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(WithCache, StepsGiveTheLogitsOfTheFullPass) {
  at::manual_seed(11);
  const models::Seq2Seq model(rich_model(GetParam()), 5);
  randomise_vectors(model);
  const std::vector<std::vector<int64_t>> source = {{3, 5, 1, 16, 2}, {4, 2}, {7, 29, 8, 2}};
  std::vector<std::vector<int64_t>> target(source.size());
  constexpr size_t kLength = 20;
  for (auto& row : target)
    for (size_t i = 0; i < kLength; ++i) row.push_back(at::randint(30, {1}).item<int64_t>());
  const at::NoGradGuard guard;
  const at::Tensor whole =
      model.forward(models::sequences_of(source), models::sequences_of(target)).logits.view({3, static_cast<int64_t>(kLength), -1});
  // Products of other numbers of rows may be summed in another order: a few roundings, which norms and gates may enlarge.
  const double most = 1000 * 0x1p-24 * whole.abs().max().item<double>();
  models::KvCache cache = model.encode(models::sequences_of(source));
  for (size_t t = 0; t < kLength; ++t) {
    const at::Tensor got = model.step(tokens_of(target, t), cache);
    EXPECT_LE((got - whole.select(1, static_cast<int64_t>(t))).abs().max().item<double>(), most) << "step " << t;
  }
}

// ---- texts

class Texts : public testing::Test {
 protected:
  Texts() : vocabulary_(number_words()), model_(small_model("reluformer", vocabulary_.size()), 1) {}

  text::Vocabulary vocabulary_;
  models::Seq2Seq model_;
};

TEST_F(Texts, KeepTheirOrderInBatchesOfAnySize) {
  const std::vector<std::string> texts = {"one two", "", "seven eight nine ten eleven one two three", "   ", "six", "five six seven eight",
                                          "two"};
  std::vector<std::vector<std::string>> results;
  for (const auto& [threads, tokens] : {std::pair(1, 1), {3, 1}, {3, 16}, {3, 4096}}) {
    const Threads set(threads);
    TranslationOptions options;
    options.batch_tokens = tokens;
    const Translator translator(model_, vocabulary_, options);
    std::vector<Source> sources;
    for (const std::string& text : texts) sources.push_back(translator.encode(text));
    int64_t last = 0;
    results.emplace_back();
    for (const auto& best : translator.translate(sources, [&](int64_t done, int64_t all) {
           EXPECT_GT(done, last);
           EXPECT_EQ(all, 7);
           last = done;
           return true;
         })) {
      ASSERT_EQ(best.size(), 1U);
      EXPECT_EQ(vocabulary_.decode(best[0].ids), best[0].text);
      results.back().push_back(best[0].text);
    }
    EXPECT_EQ(last, 7);
    EXPECT_EQ(results.back()[1], "");
    EXPECT_EQ(results.back()[3], "");
    EXPECT_EQ(results.back(), results.front());
  }
}

TEST_F(Texts, ComeGroupByGroup) {
  TranslationOptions options;
  options.batch_tokens = 2;  // groups of up to 64 tokens
  const Translator translator(model_, vocabulary_, options);
  std::vector<Source> sources;
  for (const char* text : {"one two", "", "seven eight nine ten eleven", "six", "five six seven eight"})
    for (int i = 0; i < 8; ++i) sources.push_back(translator.encode(text));
  const Translator::Translations expected = translator.translate(sources);
  size_t next = 0, groups = 0;
  const auto take = [&](size_t first, const Translator::Translations& translations) {
    ASSERT_EQ(first, next);
    size_t tokens = 0;
    for (const auto& best : translations) {
      tokens += sources[next].size();
      EXPECT_EQ(best.at(0).text, expected.at(next++).at(0).text);
    }
    EXPECT_LE(tokens, 2 * static_cast<size_t>(Translator::kBatchesOfAGroup));
    ++groups;
  };
  const TranslationCounts counts = translator.translate_in_groups(sources, take);
  EXPECT_EQ(counts.all, 40);
  EXPECT_EQ(counts.done, 40);
  int64_t tokens = 0;
  for (const auto& best : expected) tokens += static_cast<int64_t>(best.at(0).ids.size()) + 1;
  EXPECT_EQ(counts.tokens, tokens);
  EXPECT_GT(counts.seconds, 0);
  EXPECT_EQ(next, 40U);
  EXPECT_GT(groups, 2U);
  EXPECT_EQ(translator.translate_in_groups({}, take).done, 0);
}

TEST_F(Texts, StopAfterTheBatchesAtHand) {
  TranslationOptions options;
  options.batch_tokens = 2;  // each source is a batch, and ten or so are a group
  const Translator translator(model_, vocabulary_, options);
  const std::vector<Source> sources(40, translator.encode("one two"));  // of one length: they are translated in their order
  for (const int64_t threads : {1, 3}) {
    const Threads set(static_cast<int>(threads));
    for (const int64_t most : {0, 1, 3, 39, 40}) {
      size_t taken = 0;
      const auto take = [&](size_t first, const Translator::Translations& translations) {
        EXPECT_EQ(first, taken);
        taken += translations.size();
      };
      int64_t last = 0;
      const auto progress = [&](int64_t so_far, int64_t all) {
        EXPECT_EQ(all, 40);
        EXPECT_GE(so_far, last);
        last = so_far;
        return so_far < most;
      };
      const int64_t done = translator.translate_in_groups(sources, take, progress).done;
      EXPECT_EQ(last, most) << "nobody is asked again";
      EXPECT_GE(done, most == 0 ? 0 : most - threads + 1) << "a thread may have been about to begin an early one";
      EXPECT_LE(done, most == 0 ? 0 : most + threads - 1) << "the other threads end theirs and begin no more";
      EXPECT_EQ(taken, static_cast<size_t>(done));
    }
  }
}

TEST_F(Texts, AreTranslatedABatchToAThread) {
  const Threads set(2);
  TranslationOptions options;
  options.batch_tokens = 1;
  const Translator translator(model_, vocabulary_, options);
  const std::vector<Source> two(2, translator.encode("one two")), one(two.begin(), two.begin() + 1);
  // In a parallel region a batch's products have one thread.
  bool as_expected = true;
  translator.translate(two, [&](int64_t, int64_t) { return as_expected = as_expected && at::in_parallel_region(); });
  EXPECT_TRUE(as_expected);
  translator.translate(one, [&](int64_t, int64_t) { return as_expected = !at::in_parallel_region(); });
  EXPECT_TRUE(as_expected);
}

TEST_F(Texts, HaveLengthsAsAskedFor) {
  TranslationOptions options;
  options.length_factor = 1, options.length_extra = 2;
  const Translator translator(model_, vocabulary_, options);
  const Source source = translator.encode("one two three four five");
  EXPECT_EQ(source.back(), vocabulary_.eos());
  EXPECT_LT(translator.translate({source}).at(0).at(0).ids.size(), source.size() + 2);
  EXPECT_THROW(Translator(model_, vocabulary_, {.length_factor = 0, .length_extra = 0}), std::runtime_error);
  EXPECT_THROW(Translator(model_, vocabulary_, {.length_factor = -1}), std::runtime_error);
  EXPECT_THROW(Translator(model_, vocabulary_, {.batch_tokens = 0}), std::runtime_error);
}

TEST_F(Texts, ThatAreTooLongAreRefused) {
  const Translator translator(model_, vocabulary_, {});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one ";
  try {
    translator.encode(text);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("at most 40"), std::string::npos) << error.what();
  }
}

TEST_F(Texts, ThatAreTooLongStayUntranslated) {
  const Translator translator(model_, vocabulary_, {.search = {.n_best = 2}});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one ";
  const TranslatedTexts result = translate_texts(translator, {"one two", text, "three"});
  ASSERT_EQ(result.translations.size(), 3U);
  const std::vector<Translation> best = translator.translate({translator.encode("three")}).at(0);
  EXPECT_EQ(result.translations[2], (std::vector<std::string>{best.at(0).text, best.at(1).text}));
  EXPECT_EQ(result.translations[0].size(), 2U);
  EXPECT_TRUE(result.translations[1].empty());
  EXPECT_EQ(result.counts.all, 2);
  EXPECT_EQ(result.counts.done, 2);
}

TEST_F(Texts, HaveABleu) {
  const Threads set(2);
  TranslationOptions options;
  options.search.beam = 1;
  const Translator translator(model_, vocabulary_, options);
  const std::vector<Source> sources = {translator.encode("one two three"), translator.encode("four five")};
  std::vector<std::string> own;
  for (const Source& source : sources) own.push_back(translator.translate({source}).at(0).at(0).text + " and on");
  const double near = greedy_bleu(model_, vocabulary_, sources, own).value();
  EXPECT_GT(near, 50);
  EXPECT_LT(near, 100);
  EXPECT_LT(greedy_bleu(model_, vocabulary_, sources, {"x y z u v w", "x y z u v w"}).value(), near);
  // Stopped after the first of several batches.
  const std::vector<Source> many(400, sources[0]);
  int64_t done = 0;
  EXPECT_FALSE(greedy_bleu(model_, vocabulary_, many, std::vector<std::string>(many.size(), "x"), [&](int64_t so_far, int64_t) {
    done = so_far;
    return false;
  }));
  EXPECT_GT(done, 0);
  EXPECT_LT(done, 400);
}

}  // namespace
}  // namespace hinge::decode
