// JSON from files that may hold anything: as nlohmann::json parses it, but nothing that is nested so deep that to copy, print or free it
// would overflow the stack; and whole numbers that are in range.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace hinge::support {

// Whether lists and objects in the text lie more than `most` deep. The text need not be JSON.
inline bool is_nested_deeper(std::string_view text, int most) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > most) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

// Throws nlohmann::json::exception. (The parser's own callback could count, but with one it takes quadratic time.)
template <class Json = nlohmann::json> Json parse_json(std::string_view text) {
  constexpr int kDeepest = 100;
  if (is_nested_deeper(text, kDeepest)) throw nlohmann::json::other_error::create(599, "it is nested too deep", nullptr);
  return Json::parse(text);
}

// A whole number that the type can hold; throws nlohmann::json::exception for anything else. (get() would also take 1e20, whose conversion
// is undefined, and wrap 2^63 around.)
template <std::integral Whole = int64_t> Whole whole_number(const auto& value) {
  const bool fits = value.is_number_unsigned() ? std::in_range<Whole>(value.template get<uint64_t>())
                                               : value.is_number_integer() && std::in_range<Whole>(value.template get<int64_t>());
  if (!fits)
    throw nlohmann::json::other_error::create(599,
                                              "expected a whole number of at most " + std::to_string(8 * sizeof(Whole)) +
                                                  " bits, got the " + value.type_name() + " " + value.dump(),
                                              nullptr);
  return value.template get<Whole>();
}

}  // namespace hinge::support
