// UTF-8, and the few questions about characters that text is asked: space, letter, case. Nothing here depends on the user's locale.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "support/utf8.h"

namespace hinge::text {

using support::find_invalid_utf8;

// These take valid UTF-8.
char32_t next_code_point(std::string_view text, size_t& at);  // moves `at` behind it
std::u32string to_code_points(std::string_view text);
size_t count_code_points(std::string_view text);
void append_utf8(std::string& text, char32_t code_point);

// The white space of Python's str.split(), which sacreBLEU's tokens rest on.
bool is_space(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);  // 0 to 9 only
bool is_capital(char32_t c);
std::string_view strip(std::string_view text);
// Runs of spaces, tabs and line ends become one space; none at the ends. Other white space, such as no-break spaces, stays.
std::string collapse_spaces(std::string_view text);

char32_t lower_case(char32_t c);
char32_t upper_case(char32_t c);
// As Python's str.lower(): simple mappings, the dotted capital I, and the final sigma.
std::string lower_case(std::string_view text);

}  // namespace hinge::text
