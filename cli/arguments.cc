// Parsing by hand where CLI11's own messages would not name the nearest valid value.
#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "support/nearest.h"
#include "support/threads.h"

namespace hinge::cli {

std::string suggestion(const std::string& given, const std::vector<std::string>& candidates) {
  const std::optional<std::string> best = support::nearest(given, candidates);
  return best ? fmt::format(" Did you mean '{}'?", *best) : "";
}

int64_t parse_whole(const std::string& option, const std::string& text, int64_t low, int64_t high) {
  const std::optional<int64_t> value = number<int64_t>(text);
  if (!value || *value < low || *value > high)
    throw UsageError(fmt::format("{} '{}' is not allowed: give a whole number from {} to {}", option, text, low, high));
  return *value;
}

double parse_number(const std::string& option, const std::string& text) {
  const std::optional<double> value = number<double>(text);
  if (!value) throw UsageError(fmt::format("{} '{}' is not a number", option, text));
  return *value;
}

int parse_threads(const std::string& text) {
  return text.empty() ? support::default_threads() : static_cast<int>(parse_whole("--threads", text, 1, 1024));
}

std::vector<std::string> parse_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items;
  std::istringstream stream(text + ",");
  for (std::string item; std::getline(stream, item, ',');) {
    if (item.empty()) throw UsageError(fmt::format("{} '{}' has an empty item: separate the items by single commas", option, text));
    if (std::find(items.begin(), items.end(), item) != items.end())
      throw UsageError(fmt::format("{} has '{}' twice: give each item once", option, item));
    items.push_back(item);
  }
  return items;
}

void require_word(const std::string& option, const std::string& text, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), text) == known.end())
    throw UsageError(fmt::format("{} '{}' is unknown.{} Allowed: {}", option, text, suggestion(text, known), fmt::join(known, ", ")));
}

std::vector<std::string> parse_words(const std::string& option, const std::string& text, const std::vector<std::string>& known) {
  const std::vector<std::string> items = parse_list(option, text);
  for (const std::string& item : items) require_word(option, item, known);
  return items;
}

}  // namespace hinge::cli
