// The search with a real model, small and with random weights: what its cache, its reordered and shrinking batches give is what the whole
// model gives. And texts through a vocabulary.
#include "decode/translator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>

namespace hinge::decode {
namespace {

constexpr int32_t kBos = 1, kEos = 2;

models::Seq2SeqConfig small_model(const std::string& attention, int64_t vocabulary) {
  models::Seq2SeqConfig config;
  config.vocabulary = vocabulary, config.width = 32, config.slots = 48, config.heads = 4;
  config.encoder_depth = config.decoder_depth = 2;
  config.norm = "pre", config.attention = attention, config.max_length = 40;
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

class Texts : public testing::Test {
 protected:
  Texts() : vocabulary_(text::Vocabulary::train(sentences(), options())), model_(small_model("reluformer", vocabulary_.size()), 1) {}

  static std::vector<std::string_view> sentences() {
    std::vector<std::string_view> all;
    for (int i = 0; i < 30; ++i) all.insert(all.end(), {"one two three four", "five six seven", "eight nine ten eleven"});
    return all;
  }
  static text::VocabularyOptions options() {
    text::VocabularyOptions options;
    options.size = 40;
    return options;
  }

  text::Vocabulary vocabulary_;
  models::Seq2Seq model_;
};

TEST_F(Texts, KeepTheirOrderInBatchesOfAnySize) {
  const std::vector<std::string> texts = {"one two", "", "seven eight nine ten eleven one two three", "   ", "six", "five six seven eight",
                                          "two"};
  std::vector<std::vector<std::string>> results;
  for (const int64_t tokens : {1, 16, 4096}) {
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

TEST_F(Texts, OfADocumentAreOneSource) {
  const Translator translator(model_, vocabulary_, {});
  const std::vector<std::string_view> lines = {"one two", "three"};
  Source expected = translator.encode("one two");
  expected.pop_back();
  const Source second = translator.encode("three");
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(translator.encode(lines), expected);
}

TEST_F(Texts, HaveABleu) {
  TranslationOptions options;
  options.search.beam = 1;
  const Translator translator(model_, vocabulary_, options);
  const std::vector<Source> sources = {translator.encode("one two three"), translator.encode("four five")};
  std::vector<std::string> own;
  for (const Source& source : sources) own.push_back(translator.translate({source}).at(0).at(0).text + " and on");
  const double near = greedy_bleu(model_, vocabulary_, sources, own);
  EXPECT_GT(near, 50);
  EXPECT_LT(near, 100);
  EXPECT_LT(greedy_bleu(model_, vocabulary_, sources, {"x y z u v w", "x y z u v w"}), near);
}

}  // namespace
}  // namespace hinge::decode
