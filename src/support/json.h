// JSON from files that may hold anything: as nlohmann::json parses it, but nothing that is nested so deep that to copy, print or free it
// would overflow the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace hinge::support {

inline constexpr int kDeepestJson = 100;

// Throws nlohmann::json::exception.
template <class Json = nlohmann::json> Json parse_json(std::string_view text) {
  return Json::parse(text.begin(), text.end(), [](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kDeepestJson) throw nlohmann::json::other_error::create(599, "nested too deep", nullptr);
    return true;
  });
}

}  // namespace hinge::support
