// Inputs with chosen zeros have them.
#include "bench/zeros.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace hinge::bench {
namespace {

constexpr int64_t kL = 500, kD = 64;

ZeroShares achieved(const ZeroRecipe* recipe, bool causal) {
  std::vector<float> q(kL * kD), k(kL * kD);
  ZeroShares mean;
  const int heads = 8;
  for (int head = 0; head < heads; ++head) {
    fill_queries_and_keys(recipe, static_cast<uint64_t>(head) + 1, kL, kD, q.data(), k.data());
    const ZeroShares shares = measure_zero_shares(kL, kD, causal, q.data(), k.data());
    mean.weights += shares.weights / heads;
    mean.groups += shares.groups / heads;
  }
  return mean;
}

TEST(Zeros, WantedSharesAreMet) {
  for (const ZeroShares wanted :
       {ZeroShares{0.65, 0.40}, ZeroShares{0.5, 0.2}, ZeroShares{0.9, 0.75}, ZeroShares{0.65, std::pow(0.65, 6)}}) {
    const ZeroRecipe recipe = find_zero_recipe(wanted);
    for (const bool causal : {false, true}) {
      const ZeroShares got = achieved(&recipe, causal);
      EXPECT_NEAR(got.weights, wanted.weights, 0.02) << wanted.weights << ":" << wanted.groups;
      EXPECT_NEAR(got.groups, wanted.groups, 0.025) << wanted.weights << ":" << wanted.groups;
    }
  }
}

TEST(Zeros, IndependentInputsAreHalfZero) {
  const ZeroShares got = achieved(nullptr, false);
  EXPECT_NEAR(got.weights, 0.5, 0.01);
  EXPECT_NEAR(got.groups, 1.0 / 64, 0.01);
}

TEST(Zeros, ImpossibleSharesAreRefused) {
  EXPECT_THROW(find_zero_recipe({0.0, 0.0}), std::invalid_argument);
  EXPECT_THROW(find_zero_recipe({1.0, 0.5}), std::invalid_argument);
  EXPECT_THROW(find_zero_recipe({0.65, 0.05}), std::invalid_argument);
  EXPECT_THROW(find_zero_recipe({0.65, 0.65}), std::invalid_argument);
  EXPECT_THROW(find_zero_recipe({std::nan(""), 0.4}), std::invalid_argument);
}

TEST(Zeros, CountsByHand) {
  // Scores of row i and key j: q_i * k_j. Seven rows: a full group, then a group of one.
  const std::vector<float> q = {-1, -1, -1, -1, -1, 1, -1}, k = {1, 1, 1, 1, 1, 1, -1};
  const ZeroShares all = measure_zero_shares(7, 1, false, q.data(), k.data());
  EXPECT_DOUBLE_EQ(all.weights, (5 * 6 + 1 + 6) / 49.0);
  EXPECT_DOUBLE_EQ(all.groups, 6 / 14.0);  // only the last row alone, on the six positive keys
  // Causal: row i sees keys 0..i. Group 0 has keys 0..5, each seen by row 5, whose score is positive.
  const ZeroShares causal = measure_zero_shares(7, 1, true, q.data(), k.data());
  EXPECT_DOUBLE_EQ(causal.weights, (1 + 2 + 3 + 4 + 5 + 0 + 6) / 28.0);
  EXPECT_DOUBLE_EQ(causal.groups, 6 / 13.0);
}

TEST(Zeros, InputsAreOnTheGrid) {
  std::vector<float> q(20 * 8), k(20 * 8);
  const ZeroRecipe recipe = find_zero_recipe({0.65, 0.40});
  fill_queries_and_keys(&recipe, 3, 20, 8, q.data(), k.data());
  for (const float x : q) EXPECT_EQ(x * 16, std::round(x * 16));
  for (const float x : k) EXPECT_EQ(x * 16, std::round(x * 16));
}

}  // namespace
}  // namespace hinge::bench
