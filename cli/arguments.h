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

// The option --threads: a number up to 1024, or if it is empty what the thread policy says (support/threads.h).
inline constexpr const char* kThreadsMeaning = "Threads (default: OMP_NUM_THREADS, else one per core)";
int parse_threads(const std::string& text);

// Items separated by commas. Empty items and items given twice are errors.
std::vector<std::string> parse_list(const std::string& option, const std::string& text);

// A word out of `known`, and a list of them.
void require_word(const std::string& option, const std::string& text, const std::vector<std::string>& known);
std::vector<std::string> parse_words(const std::string& option, const std::string& text, const std::vector<std::string>& known);

// The value of an enum by its word in config_words, the table that configs use, too.
template <class Enum> Enum parse_word(const std::string& option, const std::string& text) {
  std::vector<std::string> known;
  for (const auto& [word, value] : config_words(Enum())) {
    if (word == text) return value;
    known.push_back(word);
  }
  require_word(option, text, known);
  return Enum();
}

}  // namespace hinge::cli
