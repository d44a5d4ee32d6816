#include "support/utf8.h"

#include <fmt/format.h>

#include <stdexcept>

namespace hinge::support {
namespace {

// The length of the well-formed sequence at the front of `text`; 0 if there is none. The bounds of the second byte are those of the
// Unicode standard, table 3-7.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return length;
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return {};
}

void require_utf8(const std::string& what, std::string_view text) {
  if (!find_invalid_utf8(text)) return;
  std::string shown;
  for (std::optional<size_t> bad = find_invalid_utf8(text); bad; bad = find_invalid_utf8(text)) {
    shown += fmt::format("{}\\x{:02X}", text.substr(0, *bad), static_cast<unsigned char>(text[*bad]));
    text.remove_prefix(*bad + 1);
  }
  throw std::runtime_error(fmt::format("{}: {}{} is not UTF-8 and cannot be stored; rename it", what, shown, text));
}

}  // namespace hinge::support
