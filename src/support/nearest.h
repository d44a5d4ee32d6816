// The valid name that a mistyped one was probably meant to be. Header only: the attention op uses it without this folder's library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hinge::support {

// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
inline size_t typing_mistakes(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

// The candidate with the fewest typing mistakes away from `given`, or one that begins with it; nothing if all are far from it.
inline std::optional<std::string> nearest(const std::string& given, const std::vector<std::string>& candidates) {
  const auto rank = [&](const std::string& candidate) {
    // Half a name is no typing mistake, but tells what is meant.
    const bool begins = given.size() >= 2 && given != "--" && candidate.starts_with(given);
    return begins ? size_t{0} : typing_mistakes(given, candidate);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (best == candidates.end() || rank(*best) > std::max<size_t>(2, given.size() / 2)) return std::nullopt;
  return *best;
}

}  // namespace hinge::support
