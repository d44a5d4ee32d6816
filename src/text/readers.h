// Readers that share a text: each reads its part of the items (lines, or pairs), and gets from the others what it needs of theirs. What
// carries the bytes is not known here: processes in training, threads in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hinge::text {

struct Readers {
  int rank = 0, count = 1;
  // Gives what each has given, in the order of their ranks. All call it as often, in the same order.
  std::function<std::vector<std::string>(const std::string& own)> all_gather = {};

  bool alone() const { return count == 1; }
  // Runs of items in turn: all have as many of the beginning as of the end.
  int owner(int64_t item) const { return static_cast<int>(item / kRun % count); }
  bool own(int64_t item) const { return owner(item) == rank; }

  static constexpr int64_t kRun = 64;
};

}  // namespace hinge::text
