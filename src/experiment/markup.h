// Text inside SVG and HTML.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace hinge::experiment {

// As text or attribute value, in XML as in HTML; control characters become spaces.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// Letters, not bytes.
inline size_t letter_count(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Width of a text in a common sans-serif font; a little too wide rather than too narrow.
inline double text_width(std::string_view text, double size) { return 0.61 * size * static_cast<double>(letter_count(text)); }

}  // namespace hinge::experiment
