// A small set of combinations in which every pair of values of any two factors occurs.
#pragma once

#include <cstddef>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace hinge::kernels::testing {

// levels[f]: how many values factor f has. Each result row holds one value number a factor. Greedy: each row starts from a pair that is
// still missing and is the best of a few random completions. The same rows every time.
inline std::vector<std::vector<size_t>> pairwise(const std::vector<size_t>& levels) {
  using Value = std::pair<size_t, size_t>;  // factor, value number
  std::set<std::pair<Value, Value>> missing;
  for (size_t f = 0; f < levels.size(); ++f)
    for (size_t g = f + 1; g < levels.size(); ++g)
      for (size_t a = 0; a < levels[f]; ++a)
        for (size_t b = 0; b < levels[g]; ++b) missing.insert({{f, a}, {g, b}});

  std::mt19937 random(1);
  const auto pairs_of = [&](const std::vector<size_t>& row, auto&& visit) {
    for (size_t f = 0; f < row.size(); ++f)
      for (size_t g = f + 1; g < row.size(); ++g) visit(std::pair<Value, Value>{{f, row[f]}, {g, row[g]}});
  };
  std::vector<std::vector<size_t>> rows;
  while (!missing.empty()) {
    const auto [first, second] = *missing.begin();
    std::vector<size_t> best;
    size_t best_count = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
      std::vector<size_t> row;
      for (size_t count : levels) row.push_back(random() % count);
      row[first.first] = first.second, row[second.first] = second.second;
      size_t count = 0;
      pairs_of(row, [&](const auto& pair) { count += missing.count(pair); });
      if (count > best_count) best_count = count, best = row;
    }
    pairs_of(best, [&](const auto& pair) { missing.erase(pair); });
    rows.push_back(best);
  }
  return rows;
}

}  // namespace hinge::kernels::testing
