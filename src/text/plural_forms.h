// Which of a language's plural forms a number takes: the "Plural-Forms" line of a catalogue's header, an expression of C in n.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hinge::text {

class PluralForms {
 public:
  // "nplurals=2; plural=(n != 1);". Empty text: that rule, which is English's and German's. Throws std::runtime_error if it is malformed or
  // cannot be evaluated for a number up to 200. Both sides of && and || and both results of ?: are evaluated, whichever counts.
  explicit PluralForms(std::string_view text = {});

  // The form for n: below nplurals.
  size_t form(uint64_t n) const;
  // Whether no other number than 1 (up to 200) takes the form of 1: only then may a message for one thing leave out its number.
  bool singular_is_one() const;

 private:
  size_t count_ = 2;
  std::string expression_ = "n != 1";
};

// The value of "NAME: value" in a catalogue's header; "" if it is not there.
std::string header_field(std::string_view header, std::string_view name);

}  // namespace hinge::text
