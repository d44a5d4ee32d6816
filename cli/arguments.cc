// Parsing by hand where CLI11's own messages would not name the nearest valid value.
#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "support/nearest.h"

namespace hinge::cli {
namespace {

std::string suggestion(const std::string& given, const std::vector<std::string>& candidates) {
  const std::optional<std::string> best = support::nearest(given, candidates);
  return best ? fmt::format(" Did you mean '{}'?", *best) : "";
}

std::vector<std::string> split(const std::string& option, const std::string& text) {
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

// The whole of `text` as a number, or nothing.
template <typename Number> std::optional<Number> number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

}  // namespace

std::optional<std::string> explain_mistake(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument.size() > 1 && argument[0] == '-') {
      const std::string name = argument.substr(0, argument.find('='));
      const std::vector<std::string> known = option_names(*at);
      if (std::find(known.begin(), known.end(), name) == known.end())
        return fmt::format("'{}' has no option '{}'.{} '{} --help' lists them.", path, name, suggestion(name, known), path);
      continue;
    }
    const std::vector<std::string> commands = command_names(*at);
    if (std::find(commands.begin(), commands.end(), argument) != commands.end()) {
      at = at->get_subcommand(argument);
      path += " " + argument;
    } else if (!commands.empty()) {
      return fmt::format("'{}' has no command '{}'.{} Commands: {}.", path, argument, suggestion(argument, commands),
                         fmt::join(commands, ", "));
    }
  }
  if (const std::vector<std::string> commands = command_names(*at); !commands.empty())
    return fmt::format("'{}' needs a command: {}. '{} --help' tells more.", path, fmt::join(commands, " or "), path);
  return std::nullopt;
}

std::vector<kernels::Activation> parse_activations(const std::string& option, const std::string& text) {
  const std::vector<std::string> names(kernels::kActivationNames.begin(), kernels::kActivationNames.end());
  std::vector<kernels::Activation> list;
  for (const std::string& item : split(option, text == "all" ? fmt::format("{}", fmt::join(names, ",")) : text)) {
    const auto h = kernels::parse_activation(item);
    if (!h)
      throw UsageError(
          fmt::format("{} '{}' is unknown.{} Allowed: {} or all", option, item, suggestion(item, names), fmt::join(names, ", ")));
    list.push_back(*h);
  }
  return list;
}

std::vector<bench::Shape> parse_shapes(const std::string& option, const std::string& text) {
  constexpr int64_t kLargest = 1 << 24;
  std::vector<bench::Shape> list;
  for (const std::string& item : split(option, text)) {
    std::vector<int64_t> sizes;
    std::istringstream stream(item + "x");
    for (std::string part; std::getline(stream, part, 'x');) sizes.push_back(number<int64_t>(part).value_or(0));
    if (sizes.size() != 3 || std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 1 || size > kLargest; }))
      throw UsageError(
          fmt::format("{} '{}' is not a shape: write batch x heads x length, each 1 to {}, for example 8x6x197", option, item, kLargest));
    list.push_back({sizes[0], sizes[1], sizes[2]});
  }
  return list;
}

std::vector<std::string> parse_words(const std::string& option, const std::string& text, const std::vector<std::string>& known) {
  const std::vector<std::string> items = split(option, text);
  for (const std::string& item : items)
    if (std::find(known.begin(), known.end(), item) == known.end())
      throw UsageError(fmt::format("{} '{}' is unknown.{} Allowed: {}", option, item, suggestion(item, known), fmt::join(known, ", ")));
  return items;
}

std::vector<bench::Pass> parse_passes(const std::string& option, const std::string& text) {
  std::vector<bench::Pass> list;
  for (const std::string& item : parse_words(option, text, {"forward", "backward"}))
    list.push_back(item == "forward" ? bench::Pass::forward : bench::Pass::backward);
  return list;
}

std::vector<std::optional<bench::ZeroShares>> parse_zeros(const std::string& option, const std::string& text) {
  std::vector<std::optional<bench::ZeroShares>> list;
  for (const std::string& item : split(option, text)) {
    if (item == "off") {
      list.emplace_back();
      continue;
    }
    const size_t colon = item.find(':');
    const std::optional<double> weights = number<double>(item.substr(0, colon));
    const std::optional<double> groups = colon == std::string::npos ? std::nullopt : number<double>(item.substr(colon + 1));
    if (!weights || !groups)
      throw UsageError(
          fmt::format("{} '{}' is not understood: write off, or the share of zero weights and of zero 6x1 groups, for example 0.65:0.40",
                      option, item));
    try {
      bench::find_zero_recipe({*weights, *groups});
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{} '{}' cannot be made: {}", option, item, error.what()));
    }
    list.push_back(bench::ZeroShares{*weights, *groups});
  }
  return list;
}

std::vector<double> parse_dropouts(const std::string& option, const std::string& text) {
  std::vector<double> list;
  for (const std::string& item : split(option, text)) {
    const std::optional<double> value = number<double>(item);
    if (!value || !(*value >= 0 && *value < 1))
      throw UsageError(fmt::format("{} '{}' is not a probability: give a number from 0 up to, but not, 1", option, item));
    if (std::find(list.begin(), list.end(), *value) != list.end())
      throw UsageError(fmt::format("{} has {} twice: give each item once", option, *value));
    list.push_back(*value);
  }
  return list;
}

std::vector<bool> parse_causal(const std::string& option, const std::string& text) {
  std::vector<bool> list;
  for (const std::string& item : split(option, text)) {
    if (item != "on" && item != "off")
      throw UsageError(fmt::format("{} '{}' is unknown. Allowed: on, off, or both as off,on", option, item));
    list.push_back(item == "on");
  }
  return list;
}

int64_t parse_whole(const std::string& option, const std::string& text, int64_t low, int64_t high) {
  const std::optional<int64_t> value = number<int64_t>(text);
  if (!value || *value < low || *value > high)
    throw UsageError(fmt::format("{} '{}' is not allowed: give a whole number from {} to {}", option, text, low, high));
  return *value;
}

}  // namespace hinge::cli
