// Whole translation models: the batches that they are measured on, and which of them are.
#include "bench/translate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace hinge::bench {
namespace {

int64_t tokens(const std::vector<int64_t>& lengths) { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

TEST(TranslateBatches, OfOneLengthHaveAbout4000Tokens) {
  for (const char* name : {"25", "256", "2048"}) {
    const auto batches = translate_batches(name);
    ASSERT_EQ(batches.size(), 1u) << name;
    for (const int64_t n : batches[0]) EXPECT_EQ(std::to_string(n), name);
    EXPECT_GT(tokens(batches[0]), 2000) << name;
    EXPECT_LE(tokens(batches[0]), 4000) << name;
  }
  EXPECT_EQ(translate_batches("decode"), (std::vector<std::vector<int64_t>>{std::vector<int64_t>(16, 25)}));
}

// What docs/benchmarks.md says of them.
TEST(TranslateBatches, OfUnevenLengthsNeedLittlePadding) {
  const auto batches = translate_batches("uneven");
  EXPECT_EQ(batches.size(), 9u);
  int64_t all = 0, padded = 0;
  std::vector<int64_t> lengths;
  for (const std::vector<int64_t>& batch : batches) {
    const int64_t with_padding = static_cast<int64_t>(batch.size()) * *std::max_element(batch.begin(), batch.end());
    EXPECT_LE(with_padding, 1000);
    all += tokens(batch), padded += with_padding;
    lengths.insert(lengths.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(lengths.size(), 280u);
  EXPECT_TRUE(std::is_sorted(lengths.begin(), lengths.end()));
  EXPECT_EQ(all, 7924);
  EXPECT_NEAR(static_cast<double>(padded) / static_cast<double>(all), 1.08, 0.005);
}

TEST(TranslateModels, OfEveryKindAreKnown) {
  const auto has = [](const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const char* name : {"softmax", "reluformer", "relu-vit", "sparsemax", "entmax15", "rela"})
    EXPECT_TRUE(has(translate_attention_names(), name)) << name;
  for (const char* name : {"relu", "gelu", "softmax", "softmax_norm"}) EXPECT_TRUE(has(translate_ffn_names(), name)) << name;
}

TEST(TranslateModels, WithSparseWeightsAndAnotherMemoryAreMeasured) {
  TranslatePlan plan;
  plan.cases = {"decode"}, plan.attentions = {"sparsemax", "entmax15", "rela"}, plan.ffns = {"softmax_norm"}, plan.ffn_width = 64;
  plan.warm_up = 0, plan.rounds = 1;
  const TranslateReport report = run(plan, [](const std::string&) {});
  EXPECT_LT(report.largest_error, 1e-4);
  ASSERT_EQ(report.rows.size(), plan.attentions.size());
  const nlohmann::ordered_json results = to_json(report)["results"];
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const TranslateRow& row = report.rows[i];
    EXPECT_EQ(row.attention, plan.attentions[i]);
    EXPECT_EQ(row.ffn, "softmax_norm");
    EXPECT_EQ(row.ffn_width, 64);
    EXPECT_GT(row.tokens, 0);
    EXPECT_GT(row.tokens_per_second, 0);
    EXPECT_EQ(results[i]["attention"], row.attention);
    EXPECT_EQ(results[i]["ffn"], "softmax_norm");
    EXPECT_EQ(results[i]["ffn_width"], 64);
    EXPECT_NE(table(report).find(row.attention + " "), std::string::npos);
  }
}

}  // namespace
}  // namespace hinge::bench
