// The places in a program's message that it fills in at run time: %s, %2$d, %(name)s, {name}, Qt's %1, a shell's $name, Lisp's ~a. A
// translation must hold the same.
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

// What is known of a message's codes. As it stands here nothing is: a percent sign before a space is then taken for a percent sign ("100%
// done").
struct FormatSyntax {
  // A format string of C or its like: "% d" is a code, and a percent sign that begins none is one by itself, so that it is found to be
  // different.
  bool percent = false;
  bool numbered = true;       // %2$d is a code; Python, Lua and Pascal do not have it
  bool spaced_names = false;  // Python: %(total count)d
  bool qt = false;            // Qt and KDE: "%1s" is %1 and an s
  bool commas = false;        // Java and C#: {0,number}, {0,10}
  bool quotes = false;        // Java: what is between apostrophes is text, '{', and an apostrophe is ''
  bool shell = false;         // $name, ${name}
  bool ruby = false;          // %<name>s
  bool boost = false;         // %1%, %|1$5|
  bool tildes = false;        // Lisp and Scheme: ~a, ~5d, ~%
};

std::vector<FormatCode> find_format_codes(std::string_view text, const FormatSyntax& syntax = {});

// Whether both hold the same codes, each as often, in any order. A target that numbers some of its arguments and not the others has none
// that a program accepts.
bool same_format_codes(std::string_view source, std::string_view target, const FormatSyntax& syntax = {});

// Whether there is something to translate: a letter that belongs to no format code and to no address (https://...).
bool has_words(std::string_view text, const FormatSyntax& syntax = {});

}  // namespace hinge::text
