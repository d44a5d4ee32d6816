// The recipe is found by bisection on simulated scores; what it achieved is then counted on the real ones.
#include "bench/zeros.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

namespace hinge::bench {
namespace {

constexpr double kGrid = 16.0;

float on_grid(double x) { return static_cast<float>(std::round(x * kGrid) / kGrid); }

template <typename Holds> double bisect(double low, double high, Holds&& below_target) {
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (below_target(middle) ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Share of groups whose six scores, neighbours correlated by r, all lie below t. `noise`: six normal numbers a group.
double share_of_zero_groups(const std::vector<double>& noise, double t, double r) {
  const double fresh = std::sqrt(1 - r * r);
  size_t zero = 0;
  for (size_t g = 0; g < noise.size(); g += kGroupRows) {
    double score = noise[g];
    bool all = score <= t;
    for (size_t i = 1; all && i < kGroupRows; ++i) {
      score = r * score + fresh * noise[g + i];
      all = score <= t;
    }
    zero += all;
  }
  return static_cast<double>(zero * kGroupRows) / static_cast<double>(noise.size());
}

}  // namespace

ZeroRecipe find_zero_recipe(const ZeroShares& wanted) {
  const double fewest = std::pow(wanted.weights, kGroupRows);
  if (!(wanted.weights > 0 && wanted.weights < 1))
    throw std::invalid_argument(fmt::format("the share of zero weights is {}, but must lie between 0 and 1", wanted.weights));
  if (!(wanted.groups >= fewest && wanted.groups < wanted.weights))
    throw std::invalid_argument(fmt::format(
        "the share of zero groups is {}, but with {} of the weights zero it must be at least {:.3f} (independent queries) and less than {}",
        wanted.groups, wanted.weights, fewest, wanted.weights));

  ZeroRecipe recipe;
  recipe.shift = bisect(-8, 8, [&](double t) { return 0.5 * std::erfc(-t / std::sqrt(2.0)) < wanted.weights; });
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal;
  std::vector<double> noise(kGroupRows * 40000);
  for (double& x : noise) x = normal(random);
  recipe.correlation = bisect(0, 1, [&](double r) { return share_of_zero_groups(noise, recipe.shift, r) < wanted.groups; });
  return recipe;
}

void fill_queries_and_keys(const ZeroRecipe* recipe, uint64_t seed, int64_t L, int64_t D, float* q, float* k) {
  if (!recipe) {
    fill_normal(2 * seed, L * D, q);
    fill_normal(2 * seed + 1, L * D, k);
    return;
  }
  if (D < 2) throw std::invalid_argument(fmt::format("a head width of {} is too small for chosen zeros: at least 2 is needed", D));
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const double fresh = std::sqrt(1 - recipe->correlation * recipe->correlation);
  std::vector<double> walk(static_cast<size_t>(D));
  for (double& x : walk) x = normal(random);
  for (int64_t l = 0; l < L; ++l) {
    // The first coordinate shifts every score by the same amount, the others make it random.
    q[l * D] = on_grid(-recipe->shift * std::sqrt(static_cast<double>(D - 1)));
    k[l * D] = 1.0f;
    for (int64_t d = 1; d < D; ++d) {
      double& step = walk[static_cast<size_t>(d)];
      step = recipe->correlation * step + fresh * normal(random);
      q[l * D + d] = on_grid(step);
      k[l * D + d] = on_grid(normal(random));
    }
  }
}

void fill_normal(uint64_t seed, int64_t size, float* data) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < size; ++i) data[i] = on_grid(normal(random));
}

ZeroShares measure_zero_shares(int64_t L, int64_t D, bool causal, const float* q, const float* k) {
  const int64_t key_step = std::max<int64_t>(1, L / 256);
  int64_t weights = 0, zero_weights = 0, groups = 0, zero_groups = 0;
  for (int64_t first = 0; first < L; first += kGroupRows) {
    const int64_t last = std::min(first + kGroupRows, L) - 1;
    for (int64_t j = 0; j < (causal ? last + 1 : L); j += key_step) {
      bool all_zero = true;
      for (int64_t i = causal ? std::max(first, j) : first; i <= last; ++i) {
        float score = 0;
        for (int64_t d = 0; d < D; ++d) score += q[i * D + d] * k[j * D + d];
        const bool zero = score <= 0;
        ++weights;
        zero_weights += zero;
        all_zero = all_zero && zero;
      }
      ++groups;
      zero_groups += all_zero;
    }
  }
  return {static_cast<double>(zero_weights) / static_cast<double>(std::max<int64_t>(1, weights)),
          static_cast<double>(zero_groups) / static_cast<double>(std::max<int64_t>(1, groups))};
}

}  // namespace hinge::bench
