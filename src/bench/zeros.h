// Queries and keys whose relu weights are zero as often, and in as large groups, as a benchmark wants.
//
// In trained relu models most weights are zero, and neighbouring queries agree on which. Both are made here:
//   score_ij = q_i . k_j ~ normal(-t sqrt(D-1), D-1),   q_i the next step of a random walk that forgets: corr(q_i, q_i+1) = r
// t sets the share of zero weights, r how often a whole group of six neighbouring queries has weight zero for a key.
#pragma once

#include <cstdint>

#include "hinge/kernels/attention.h"

namespace hinge::bench {

inline constexpr int64_t kGroupRows = 6;

// Shares in [0, 1]: of the weights, and of the (6 neighbouring queries x 1 key) groups.
struct ZeroShares {
  double weights = 0;
  double groups = 0;
  bool operator==(const ZeroShares&) const = default;
};

struct ZeroRecipe {
  double shift = 0;        // t
  double correlation = 0;  // r
};

// Throws std::invalid_argument if no queries are like that: 0 < weights < 1 and weights^6 <= groups < weights are needed.
ZeroRecipe find_zero_recipe(const ZeroShares& wanted);

// Fills one head, q and k of [L, D]. Without a recipe both are independent normal numbers. All numbers are multiples of 1/16, so
// that scores are exact in float32 and a check in float64 sees the same signs. A recipe needs D >= 2.
void fill_queries_and_keys(const ZeroRecipe* recipe, uint64_t seed, int64_t L, int64_t D, float* q, float* k);

// Independent normal numbers, multiples of 1/16.
void fill_normal(uint64_t seed, int64_t size, float* data);

// The shares of the visible scores that are not positive, in one head; counted on a sample of the keys where L is large.
ZeroShares measure_zero_shares(int64_t L, int64_t D, bool causal, const float* q, const float* k);

}  // namespace hinge::bench
