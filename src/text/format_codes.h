// The places in a program's message that it fills in at run time: %s, %2$d, %(name)s, {name}, Qt's %1. A translation must hold the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hinge::text {

struct FormatCode {
  size_t begin = 0, end = 0;  // bytes of the text
  // What must be equal in a translation: the argument and its type. "%s" and "%1$s" are both "1$s" where it is the first; flags, width and
  // precision may differ.
  std::string meaning;
};

// In messages of unknown kind a percent sign before a space is taken for a percent sign ("100% done"). With `c_format` the message is known
// to be a format string of C: "% d" is a code, and a percent sign that begins none is one by itself, so that it is found to be different.
std::vector<FormatCode> find_format_codes(std::string_view text, bool c_format = false);

// The codes as they stand in the text, in order.
std::vector<std::string> format_codes(std::string_view text, bool c_format = false);

// Whether both hold the same codes, each as often, in any order.
bool same_format_codes(std::string_view source, std::string_view target, bool c_format = false);

}  // namespace hinge::text
