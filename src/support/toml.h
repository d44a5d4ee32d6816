// TOML for the files that read it. toml++ takes seconds to compile: everything else includes support/config.h.
#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/config.h"

namespace hinge::support {

// `name` is the file's, for the message. Throws ConfigError.
inline toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}: not TOML: {}", name, error.source().begin.line, error.description()));
  }
}

// A table's entries in the order of the text; toml++ itself keeps them sorted by name.
inline std::vector<std::pair<std::string, const toml::node*>> entries_of(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(std::string(key.str()), &node);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto place = [](const toml::node& node) {
      const toml::source_position& begin = node.source().begin;
      return std::pair(begin.line, begin.column);
    };
    return place(*a.second) < place(*b.second);
  });
  return entries;
}

}  // namespace hinge::support
