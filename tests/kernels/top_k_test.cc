// The likeliest classes of rows: against a sort in float64 for all shapes of rows, ties included, on every SIMD target.
#include "hinge/kernels/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/top_k_reference.h"
#include "problem.h"
#include "threads.h"

namespace hinge::kernels::testing {
namespace {

struct Found {
  std::vector<int32_t> index;
  std::vector<float> log_probability, log_normaliser;
  bool operator==(const Found&) const = default;
};

Found find(const std::vector<float>& logits, int64_t rows, int64_t k, int workers) {
  const auto n = static_cast<size_t>(rows);
  Found found{std::vector<int32_t>(n * static_cast<size_t>(k), -1), std::vector<float>(n * static_cast<size_t>(k)), std::vector<float>(n)};
  Threads threads(workers);
  top_k({rows, static_cast<int64_t>(logits.size()) / rows, k, logits.data(), found.index.data(), found.log_probability.data(),
         found.log_normaliser.data()},
        threads);
  return found;
}

void expect_as_sorted(const std::vector<float>& logits, int64_t rows, int64_t k) {
  const int64_t classes = static_cast<int64_t>(logits.size()) / rows;
  for_each_simd_target([&] {
    const Found found = find(logits, rows, k, 1);
    EXPECT_EQ(found, find(logits, rows, k, 3)) << "results depend on the number of workers";
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = logits.data() + row * classes;
      const reference::TopKRow expected = reference::top_k(x, classes, k);
      // Exponentials of differences up to 2^7 and a sum of positive terms in stretches: some ten roundings.
      const double tolerance = 16 * std::numeric_limits<float>::epsilon() * (1 + std::abs(static_cast<double>(x[expected.index[0]])));
      EXPECT_NEAR(found.log_normaliser[static_cast<size_t>(row)], expected.log_normaliser, tolerance);
      for (int64_t i = 0; i < k; ++i) {
        const auto at = static_cast<size_t>(row * k + i), place = static_cast<size_t>(i);
        ASSERT_EQ(found.index[at], expected.index[place]) << classes << " classes, row " << row << ", place " << i << " of " << k;
        EXPECT_NEAR(found.log_probability[at], expected.log_probability[place], 2 * tolerance);
      }
    }
  });
}

TEST(TopK, IsWhatSortingGives) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (const int64_t classes : {1, 2, 7, 31, 128, 129, 500, 1024, 1030, 10000})
    for (const int64_t k : {1, 2, 5, 8, 100, 500}) {
      if (k > classes) continue;
      std::vector<float> logits(static_cast<size_t>(5 * classes));
      for (float& x : logits) x = normal(random);
      expect_as_sorted(logits, 5, k);
    }
}

TEST(TopK, EqualOnesGoByTheirNumber) {
  std::mt19937 random(2);
  for (const int64_t classes : {9, 64, 300, 4000})
    for (const int values : {1, 2, 5}) {
      std::vector<float> logits(static_cast<size_t>(3 * classes));
      for (float& x : logits) x = static_cast<float>(random() % static_cast<uint32_t>(values));
      expect_as_sorted(logits, 3, std::min<int64_t>(classes, 9));
    }
}

TEST(TopK, TakesRowsInAnyOrderAndAnyRange) {
  std::vector<float> logits;
  const int64_t classes = 3000;
  for (int64_t i = 0; i < classes; ++i) logits.push_back(static_cast<float>(i));             // the best are the last
  for (int64_t i = 0; i < classes; ++i) logits.push_back(static_cast<float>(-i));            // the first
  for (int64_t i = 0; i < classes; ++i) logits.push_back(static_cast<float>(i % 7) * -100);  // far apart
  for (int64_t i = 0; i < classes; ++i) logits.push_back(i == 77 || i == 2000 ? 5.0F : -std::numeric_limits<float>::infinity());
  expect_as_sorted(std::vector(logits.begin(), logits.begin() + 3 * classes), 3, 6);
  expect_as_sorted(logits, 4, 2);
}

TEST(TopK, SaysWhichRowsAreNoNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const int64_t classes = 700;
  for_each_simd_target([&] {
    for (const int64_t place : {0, 3, 127, 128, 699})
      for (const float bad : {kNan, kInfinity}) {
        std::vector<float> logits(static_cast<size_t>(2 * classes), 1);
        logits[static_cast<size_t>(classes + place)] = bad;
        const Found found = find(logits, 2, 4, 1);
        EXPECT_FALSE(std::isfinite(found.log_normaliser[1])) << bad << " at " << place;
        EXPECT_NEAR(found.log_normaliser[0], 1 + std::log(700.0), 1e-5);
        for (const int32_t index : found.index) EXPECT_TRUE(index >= 0 && index < classes);
      }
    const std::vector<float> nothing(static_cast<size_t>(classes), -kInfinity);
    EXPECT_FALSE(std::isfinite(find(nothing, 1, 3, 1).log_normaliser[0]));
  });
}

}  // namespace
}  // namespace hinge::kernels::testing
