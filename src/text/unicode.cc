// Decoding by hand; the classes of characters are those of glibc's C.UTF-8 locale, which every Debian has.
#include "text/unicode.h"

#include <algorithm>
#include <clocale>
#include <cwctype>
#include <stdexcept>

namespace hinge::text {
namespace {

locale_t unicode_locale() {
  static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (locale == nullptr)
    throw std::runtime_error(
        "this system has no locale C.UTF-8, which is needed to tell letters from other characters; install the package libc-bin");
  return locale;
}

bool is_cased(char32_t c) {
  const auto wide = static_cast<wint_t>(c);
  return ::towlower_l(wide, unicode_locale()) != wide || ::towupper_l(wide, unicode_locale()) != wide;
}

// What the rule of the final sigma looks through: marks, apostrophes, dots inside words.
bool is_case_ignorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD || c == 0xAF || c == 0xB4 || c == 0xB7 ||
         c == 0xB8 || (c >= 0x2B0 && c <= 0x36F) || (c >= 0x200B && c <= 0x200F) || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
         c == 0x2027;
}

// Whether the capital sigma at `at` ends a word: a cased letter before it and none after it.
bool is_final_sigma(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  char32_t c = first & (0x3Fu >> more);
  for (; more > 0 && at < text.size(); --more) c = c << 6 | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
  return c;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) points.push_back(next_code_point(text, at));
  return points;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  return count;
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

bool is_space(char32_t c) {
  if (c <= 0x20) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  if (c < 0x1680) return c == 0x85 || c == 0xA0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return ::iswalpha_l(static_cast<wint_t>(c), unicode_locale()) != 0;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

bool is_capital(char32_t c) { return lower_case(c) != c; }

std::string_view strip(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (is_space(next_code_point(text, at))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

std::string collapse_spaces(std::string_view text) {
  std::string collapsed;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space)
      collapsed.push_back(c);
    else if (!collapsed.empty() && collapsed.back() != ' ')
      collapsed.push_back(' ');
  }
  if (!collapsed.empty() && collapsed.back() == ' ') collapsed.pop_back();
  return collapsed;
}

char32_t lower_case(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(::towlower_l(static_cast<wint_t>(c), unicode_locale()));
}

char32_t upper_case(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return static_cast<char32_t>(::towupper_l(static_cast<wint_t>(c), unicode_locale()));
}

std::string lower_case(std::string_view text) {
  const std::u32string points = to_code_points(text);
  std::string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i] == 0x130)  // capital I with a dot above
      lower += "i\u0307";
    else if (points[i] == 0x3A3 && is_final_sigma(points, i))
      append_utf8(lower, 0x3C2);
    else
      append_utf8(lower, lower_case(points[i]));
  }
  return lower;
}

}  // namespace hinge::text
