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
  const size_t width = b.size() + 1;
  std::vector<size_t> cost((a.size() + 1) * width);
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& here = cost[i * width + j];
      const auto before = [&](size_t up, size_t left) { return cost[(i - up) * width + j - left]; };
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here = std::min({before(1, 0) + 1, before(0, 1) + 1, before(1, 1) + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) here = std::min(here, before(2, 2) + 1);
    }
  return cost.back();
}

// The candidate with the fewest typing mistakes away from `given`, or one that begins with it; nothing if all are far from it.
inline std::optional<std::string> nearest(const std::string& given, const std::vector<std::string>& candidates) {
  const size_t most = std::max<size_t>(2, given.size() / 2);
  std::optional<std::string> best;
  size_t fewest = most + 1;
  for (const std::string& candidate : candidates) {
    // Half a name is no typing mistake, but tells what is meant. A name of another length has as many mistakes at least: so only such are
    // counted as are hardly longer than what is known, however long the given one is.
    const bool begins = given.size() >= 2 && given != "--" && candidate.starts_with(given);
    const size_t longer = std::max(given.size(), candidate.size()) - std::min(given.size(), candidate.size());
    if (!begins && longer >= fewest) continue;
    const size_t mistakes = begins ? 0 : typing_mistakes(given, candidate);
    if (mistakes < fewest) best = candidate, fewest = mistakes;
  }
  return best;
}

}  // namespace hinge::support
