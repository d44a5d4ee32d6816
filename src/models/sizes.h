// Sizes that a name stands for, beside those that a config gives one by one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "support/require.h"

namespace hinge::models {

// A size that is not given is `value`; a given one must be that where the config names its sizes (`named`: the key and the name, or empty).
inline void fill_in_size(const char* key, std::optional<int64_t>& given, int64_t value, const std::string& named) {
  if (!given) given = value;
  support::require(named.empty() || *given == value,
                   fmt::format("model.{} {} contradicts {}, where it is {}: drop one of the two", key, *given, named, value));
  support::require(*given > 0, fmt::format("model.{} must be at least 1, got {}", key, *given));
}

}  // namespace hinge::models
