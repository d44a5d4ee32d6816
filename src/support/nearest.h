// The valid name that a mistyped one was probably meant to be.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hinge::support {

// The candidate with the fewest typing mistakes away from `given`, or one that begins with it; nothing if all are far from it.
std::optional<std::string> nearest(const std::string& given, const std::vector<std::string>& candidates);

}  // namespace hinge::support
