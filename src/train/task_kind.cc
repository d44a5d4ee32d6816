#include "train/task_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "support/atomic_file.h"
#include "support/nearest.h"

namespace hinge::train {
namespace {

// As TOML text; "" if there is none.
std::string task_text(const support::FlatConfig& config) {
  for (const auto& [key, value] : config)
    if (key == "task") return value;
  return "";
}

std::string quoted(const std::string& word) { return '"' + word + '"'; }

}  // namespace

TaskKind task_of(const support::FlatConfig& config) {
  const std::string given = task_text(config);
  for (const auto& [word, kind] : config_words(TaskKind()))
    if (given == quoted(word)) return kind;
  return TaskKind::vit;
}

TaskKind task_of_config(const std::string& path) {
  const support::FlatConfig config = support::flatten_config(support::read_file(path), path);
  const std::string given = task_text(config);
  std::vector<std::string> words;
  for (const auto& entry : config_words(TaskKind())) words.push_back(quoted(entry.first));
  if (!given.empty() && std::find(words.begin(), words.end(), given) == words.end()) {
    const std::optional<std::string> meant = support::nearest(given, words);
    throw support::ConfigError(fmt::format("{}: task is {}; allowed are {}{}", path, given, fmt::join(words, " and "),
                                           meant ? fmt::format("; did you mean {}?", *meant) : ""));
  }
  return task_of(config);
}

}  // namespace hinge::train
