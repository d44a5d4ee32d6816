// The search on made-up models that are tables of probabilities: against all sequences there are, and against a search in plain loops.
#include "decode/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "../support/errors.h"

namespace hinge::decode {
namespace {

using support::error_of;

constexpr int32_t kBos = 0, kEos = 1;
using Tokens = std::vector<int32_t>;

// Logits after every prefix, drawn from a hash of the sentence and the prefix. `coarse`: few different values, so that there are ties.
struct Table {
  int64_t vocabulary = 5;
  bool coarse = false;
  float eos_bonus = 0;

  std::vector<float> logits(uint64_t sentence, const Tokens& prefix) const {
    std::vector<uint32_t> words = {static_cast<uint32_t>(sentence), static_cast<uint32_t>(prefix.size())};
    words.insert(words.end(), prefix.begin(), prefix.end());
    std::seed_seq seed(words.begin(), words.end());
    std::mt19937 random(seed);
    std::vector<float> row(static_cast<size_t>(vocabulary));
    for (float& x : row) x = coarse ? static_cast<float>(random() % 3) : std::normal_distribution<float>(0, 2)(random);
    row[kEos] += eos_bonus;
    return row;
  }
  // In the kernel's arithmetic, so that equal ones are equal here, too.
  std::vector<double> log_probabilities(uint64_t sentence, const Tokens& prefix) const {
    const std::vector<float> row = logits(sentence, prefix);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x) - largest);
    std::vector<double> result;
    for (const float x : row) result.push_back(static_cast<double>(x) - largest - std::log(sum));
    return result;
  }
};

class TableSteps : public StepFunction {
 public:
  TableSteps(const Table& table, const std::vector<uint64_t>& sentences) : table_(table) {
    for (const uint64_t s : sentences) rows_.push_back({s, {}});
  }

  const float* step(std::span<const int64_t> tokens) override {
    EXPECT_EQ(tokens.size(), rows_.size());
    logits_.clear();
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].read.push_back(static_cast<int32_t>(tokens[i]));
      EXPECT_EQ(rows_[i].read[0], kBos);
      const std::vector<float> row = table_.logits(rows_[i].sentence, Tokens(rows_[i].read.begin() + 1, rows_[i].read.end()));
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
    most_rows = std::max(most_rows, rows_.size());
    return logits_.data();
  }
  void reorder(std::span<const int64_t> indices) override {
    std::vector<Row> next;
    for (const int64_t i : indices) next.push_back(rows_.at(static_cast<size_t>(i)));
    rows_ = std::move(next);
    ++reorders;
  }

  size_t most_rows = 0;
  int reorders = 0;

 private:
  struct Row {
    uint64_t sentence = 0;
    Tokens read;
  };
  const Table& table_;
  std::vector<Row> rows_;
  std::vector<float> logits_;
};

SearchProblem problem_of(const Table& table, const std::vector<int64_t>& longest) {
  return {table.vocabulary, kBos, kEos, {kBos}, longest};
}

std::vector<Hypothesis> search_one(const Table& table, uint64_t sentence, int64_t longest, const SearchOptions& options,
                                   SearchCounts* counts = nullptr) {
  TableSteps steps(table, {sentence});
  kernels::Serial serial;
  return search(steps, problem_of(table, {longest}), options, serial, counts).at(0);
}

double score(double log_probability, size_t tokens, double length_penalty) {
  return log_probability / std::pow((5 + static_cast<double>(tokens) + 1) / 6, length_penalty);
}

// The search as it is described, without any thought of speed; ends when rule 1 says so, or not before all have ended.
std::vector<Hypothesis> plain_search(const Table& table, uint64_t sentence, int64_t longest, const SearchOptions& options) {
  struct Extended {
    Tokens tokens;
    double log_probability = 0;
  };
  std::vector<Extended> live(1);
  std::vector<Hypothesis> ended;
  const auto end = [&](const Extended& one, double log_probability) {
    ended.push_back({one.tokens, score(log_probability, one.tokens.size(), options.length_penalty), log_probability});
  };
  while (!live.empty() && static_cast<double>(ended.size()) < options.patience * static_cast<double>(options.beam)) {
    struct Next {
      double log_probability;
      size_t parent;
      int32_t token;
    };
    std::vector<Next> all;
    const bool last = static_cast<int64_t>(live[0].tokens.size()) + 1 == longest;
    for (size_t parent = 0; parent < live.size(); ++parent) {
      const std::vector<double> p = table.log_probabilities(sentence, live[parent].tokens);
      for (int32_t token = 1; token < static_cast<int32_t>(p.size()); ++token)
        if (!last || token == kEos) all.push_back({live[parent].log_probability + p[static_cast<size_t>(token)], parent, token});
    }
    std::stable_sort(all.begin(), all.end(), [](const Next& a, const Next& b) { return a.log_probability > b.log_probability + 1e-6; });
    std::vector<Extended> next;
    for (size_t rank = 0; rank < all.size() && static_cast<int64_t>(next.size()) < options.beam; ++rank) {
      if (all[rank].token == kEos) {
        if (static_cast<int64_t>(rank) < options.beam) end(live[all[rank].parent], all[rank].log_probability);
        continue;
      }
      next.push_back({live[all[rank].parent].tokens, all[rank].log_probability});
      next.back().tokens.push_back(all[rank].token);
    }
    live = std::move(next);
  }
  std::stable_sort(ended.begin(), ended.end(), [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score + 1e-6; });
  ended.resize(std::min(ended.size(), static_cast<size_t>(options.n_best)));
  return ended;
}

void expect_same(const std::vector<Hypothesis>& got, const std::vector<Hypothesis>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << what << ", place " << i;
    EXPECT_NEAR(got[i].score, expected[i].score, 1e-5) << what << ", place " << i;
    EXPECT_NEAR(got[i].log_probability, expected[i].log_probability, 1e-5) << what << ", place " << i;
  }
}

TEST(BeamSearch, AWideBeamFindsTheBestOfAllSequences) {
  const Table table{.vocabulary = 5};
  const int64_t longest = 5;
  for (const double length_penalty : {0.0, 0.6, 1.5, -0.5})
    for (uint64_t sentence = 0; sentence < 4; ++sentence) {
      std::vector<Hypothesis> all;
      const std::function<void(Tokens&, double)> walk = [&](Tokens& tokens, double so_far) {
        const std::vector<double> p = table.log_probabilities(sentence, tokens);
        all.push_back({tokens, score(so_far + p[kEos], tokens.size(), length_penalty), so_far + p[kEos]});
        if (static_cast<int64_t>(tokens.size()) + 1 == longest) return;
        for (int32_t token = 2; token < 5; ++token) {
          tokens.push_back(token);
          walk(tokens, so_far + p[static_cast<size_t>(token)]);
          tokens.pop_back();
        }
      };
      Tokens none;
      walk(none, 0);
      ASSERT_EQ(all.size(), 1U + 3 + 9 + 27 + 81);
      std::sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
      for (const int64_t n_best : {1, 7, 121}) {
        SearchOptions options{.beam = 400, .n_best = n_best, .length_penalty = length_penalty};
        const std::vector<Hypothesis> found = search_one(table, sentence, longest, options);
        expect_same(found, {all.begin(), all.begin() + n_best}, "length penalty " + std::to_string(length_penalty));
      }
    }
}

TEST(BeamSearch, IsTheSearchInPlainLoops) {
  for (const bool coarse : {false, true})
    for (const float eos_bonus : {-2.0F, 0.0F, 2.0F}) {
      const Table table{.vocabulary = 9, .coarse = coarse, .eos_bonus = eos_bonus};
      for (const int64_t beam : {1, 2, 3, 5})
        for (const double length_penalty : {0.0, 0.6, 2.0, -1.0})
          for (const double patience : {1.0, 1.5, std::numeric_limits<double>::infinity()})
            for (uint64_t sentence = 0; sentence < 6; ++sentence)
              for (const int64_t n_best : {int64_t{1}, beam}) {
                const SearchOptions options{.beam = beam, .n_best = n_best, .length_penalty = length_penalty, .patience = patience};
                expect_same(search_one(table, sentence, 8, options), plain_search(table, sentence, 8, options),
                            "beam " + std::to_string(beam) + ", penalty " + std::to_string(length_penalty) + ", patience " +
                                std::to_string(patience) + (coarse ? ", ties" : ""));
                if (HasFailure()) return;
              }
    }
}

TEST(BeamSearch, OfOneIsGreedy) {
  const Table table{.vocabulary = 30};
  for (uint64_t sentence = 0; sentence < 20; ++sentence) {
    Tokens expected;
    double log_probability = 0;
    for (int64_t length = 1;; ++length) {
      const std::vector<double> p = table.log_probabilities(sentence, expected);
      auto best = static_cast<int32_t>(std::max_element(p.begin() + 1, p.end()) - p.begin());
      if (length == 12) best = kEos;
      log_probability += p[static_cast<size_t>(best)];
      if (best == kEos) break;
      expected.push_back(best);
    }
    const std::vector<Hypothesis> found = search_one(table, sentence, 12, {.beam = 1});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].tokens, expected);
    EXPECT_NEAR(found[0].log_probability, log_probability, 1e-5);
  }
}

TEST(BeamSearch, ABatchGivesWhatItsSentencesGiveAlone) {
  for (const bool coarse : {false, true}) {
    const Table table{.vocabulary = 12, .coarse = coarse};
    const std::vector<uint64_t> sentences = {5, 5, 1, 9, 3, 4};
    const std::vector<int64_t> longest = {7, 3, 1, 12, 2, 9};
    const SearchOptions options{.beam = 4, .n_best = 4};
    TableSteps steps(table, sentences);
    kernels::Serial serial;
    SearchCounts counts;
    const auto together = search(steps, problem_of(table, longest), options, serial, &counts);
    int64_t rows = 0;
    for (size_t i = 0; i < sentences.size(); ++i) {
      SearchCounts alone;
      const std::vector<Hypothesis> one = search_one(table, sentences[i], longest[i], options, &alone);
      rows += alone.rows;
      ASSERT_EQ(together[i].size(), one.size());
      for (size_t n = 0; n < one.size(); ++n) {
        EXPECT_EQ(together[i][n].tokens, one[n].tokens);
        EXPECT_EQ(together[i][n].score, one[n].score) << "to the last bit";
      }
    }
    EXPECT_EQ(counts.rows, rows) << "sentences that are done leave the batch";
    EXPECT_LE(steps.most_rows, 4 * sentences.size());
  }
}

TEST(BeamSearch, NBestAreSortedAndDifferent) {
  const Table table{.vocabulary = 40};
  const std::vector<Hypothesis> found = search_one(table, 3, 10, {.beam = 8, .n_best = 8});
  ASSERT_EQ(found.size(), 8U);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_GE(found[i - 1].score, found[i].score);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(found[i].tokens, found[j].tokens);
  }
  EXPECT_EQ(search_one(table, 3, 10, {.beam = 8, .n_best = 3})[2].tokens, found[2].tokens);
}

TEST(BeamSearch, StopsWhenNothingCanBecomeBetter) {
  // Without a length penalty the first end that beats all live ones is final: a model that is sure of it takes one step.
  const Table sure{.vocabulary = 9, .eos_bonus = 30};
  SearchCounts counts;
  const SearchOptions options{.beam = 4, .length_penalty = 0, .patience = std::numeric_limits<double>::infinity()};
  EXPECT_TRUE(search_one(sure, 1, 100, options, &counts).at(0).tokens.empty());
  EXPECT_EQ(counts.steps, 1);
}

TEST(BeamSearch, LengthPenaltyFavoursLongOnes) {
  const Table table{.vocabulary = 9, .eos_bonus = 1};
  size_t before = 0;
  for (const double length_penalty : {0.0, 1.0, 3.0}) {
    size_t tokens = 0;
    for (uint64_t sentence = 0; sentence < 30; ++sentence)
      tokens += search_one(table, sentence, 10, {.beam = 6, .length_penalty = length_penalty, .patience = 100}).at(0).tokens.size();
    EXPECT_GT(tokens, before);
    before = tokens;
  }
}

TEST(BeamSearch, ForbiddenTokensAreNeverSaid) {
  const Table table{.vocabulary = 6};
  SearchProblem problem = problem_of(table, {9, 9, 9});
  problem.forbidden = {kBos, 3, 4};
  TableSteps steps(table, {1, 2, 3});
  kernels::Serial serial;
  for (const auto& sentence : search(steps, problem, {.beam = 5, .n_best = 5}, serial))
    for (const Hypothesis& one : sentence)
      for (const int32_t token : one.tokens) EXPECT_TRUE(token == 2 || token == 5) << token;
}

TEST(BeamSearch, RowsStayWhereTheyCan) {
  // All say the same after any prefix but the first: every hypothesis is continued by itself.
  class Steady : public StepFunction {
   public:
    const float* step(std::span<const int64_t> tokens) override {
      logits_.assign(tokens.size() * 4, -1000.0F);
      for (size_t row = 0; row < tokens.size(); ++row)
        for (const int64_t next : {2, 3})
          if (tokens[row] == kBos || tokens[row] == next)
            logits_[row * 4 + static_cast<size_t>(next)] = tokens[row] == kBos ? static_cast<float>(-next) : 0.0F;
      return logits_.data();
    }
    void reorder(std::span<const int64_t>) override { ++reorders; }
    int reorders = 0;

   private:
    std::vector<float> logits_;
  } steps;
  kernels::Serial serial;
  const auto found = search(steps, {4, kBos, kEos, {kBos}, {20}}, {.beam = 2, .n_best = 2}, serial);
  EXPECT_EQ(found[0][0].tokens, Tokens(19, 2));
  EXPECT_EQ(found[0][1].tokens, Tokens(19, 3));
  EXPECT_EQ(steps.reorders, 1) << "from one row to two, and nothing after that";
}

TEST(BeamSearch, WrongOptionsAreNamed) {
  EXPECT_NE(error_of([] { check({.beam = 0}); }).find("a beam of 0"), std::string::npos);
  EXPECT_NE(error_of([] { check({.beam = 4, .n_best = 5}); }).find("the 5 best translations cannot come from a beam of 4"),
            std::string::npos);
  EXPECT_NE(error_of([] { check({.length_penalty = std::nan("")}); }).find("length penalty of nan"), std::string::npos);
  EXPECT_NE(error_of([] { check({.patience = 0.5}); }).find("patience of 0.5"), std::string::npos);
}

TEST(BeamSearch, BrokenWeightsAreSaid) {
  class Broken : public StepFunction {
   public:
    const float* step(std::span<const int64_t>) override { return logits_.data(); }
    void reorder(std::span<const int64_t>) override {}

   private:
    std::vector<float> logits_ = std::vector<float>(4, std::numeric_limits<float>::quiet_NaN());
  } steps;
  kernels::Serial serial;
  EXPECT_NE(error_of([&] { search(steps, {4, kBos, kEos, {}, {5}}, {}, serial); }).find("not numbers"), std::string::npos);
}

TEST(Batches, HoldNeighboursInLength) {
  const std::vector<int64_t> lengths = {3, 50, 7, 3, 120, 8, 1};
  const auto batches = batches_by_length(lengths, 60);
  const std::vector<std::vector<size_t>> expected = {{4}, {1, 5}, {2, 0, 3, 6}};
  EXPECT_EQ(batches, expected);
  EXPECT_TRUE(batches_by_length({}, 60).empty());
}

}  // namespace
}  // namespace hinge::decode
