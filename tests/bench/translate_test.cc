// The batches that whole translation models are measured on.
#include "bench/translate.h"

#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace
}  // namespace hinge::bench
