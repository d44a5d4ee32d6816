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

// The line in which a key has more than `most` parts (a.b.c has three), or 0. toml++ bounds the depth of lists and inline tables, but not
// of these, and to free a table that is nested some ten thousand deep overflows the stack.
inline size_t line_of_deep_key(std::string_view text, size_t most) {
  size_t line = 1, dots = 0;
  for (const char c : text) {
    line += c == '\n' ? 1 : 0;
    if (c == '.' && ++dots >= most) return line;
    if (std::string_view("\n,=[]{}#").find(c) != std::string_view::npos) dots = 0;
  }
  return 0;
}

// `name` is the file's, for the message. Throws ConfigError.
inline toml::table parse_toml(std::string_view text, const std::string& name) {
  constexpr size_t kMostBytes = 4 << 20, kMostParts = 200;
  if (text.size() > kMostBytes) throw ConfigError(fmt::format("{}: has {} bytes; a config has at most {}", name, text.size(), kMostBytes));
  if (const size_t line = line_of_deep_key(text, kMostParts); line > 0)
    throw ConfigError(fmt::format("{}:{}: not a config: a key has more than {} parts", name, line, kMostParts));
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
