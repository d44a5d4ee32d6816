// Reads the values of options, and says what is wrong with them: what was given, what is allowed, and the nearest valid name.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace hinge::cli {

// A mistake in what the user typed: shown as one message, exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// " Did you mean 'doctor'?", or nothing if no candidate is near.
std::string suggestion(const std::string& given, const std::vector<std::string>& candidates);

// The whole of `text` as a number, or nothing.
template <typename Number> std::optional<Number> number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// In what follows, `option` is for the message.

// A whole number in [low, high].
int64_t parse_whole(const std::string& option, const std::string& text, int64_t low, int64_t high);

// Any number.
double parse_number(const std::string& option, const std::string& text);

// Items separated by commas. Empty items and items given twice are errors.
std::vector<std::string> parse_list(const std::string& option, const std::string& text);

// The same, out of `known`.
std::vector<std::string> parse_words(const std::string& option, const std::string& text, const std::vector<std::string>& known);

}  // namespace hinge::cli
