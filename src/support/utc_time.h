// The time as files keep it.
#pragma once

#include <cmath>
#include <ctime>
#include <string>

namespace hinge::support {

// Now, in UTC, as ISO 8601 has it: 2026-11-18T08:00:00Z.
inline std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// The seconds since 1970 of such a time; NaN if it is none.
inline double utc_seconds(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end != nullptr && *end == '\0' ? static_cast<double>(::timegm(&parts)) : std::nan("");
}

}  // namespace hinge::support
