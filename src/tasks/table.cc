// The table of tasks: the one place that names them all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "support/atomic_file.h"
#include "support/nearest.h"
#include "tasks/task.h"

// One line per task: its folder, which is its namespace, too. task() is in src/tasks/FOLDER/task.cc. The first is that of a config without
// the key `task`.
#define HINGE_TASKS(X) \
  X(vision)            \
  X(translation)

#define HINGE_DECLARE_TASK(folder) \
  namespace hinge::folder {        \
  const tasks::Task& task();       \
  }
HINGE_TASKS(HINGE_DECLARE_TASK)
#undef HINGE_DECLARE_TASK

namespace hinge::tasks {
namespace {

// The value of the key as TOML text, which has quotes; "" if there is none.
std::string task_text(const support::FlatConfig& config) {
  for (const auto& [key, value] : config)
    if (key == "task") return value;
  return "";
}

std::string quoted(const std::string& word) { return '"' + word + '"'; }

// Null if there is no such task.
const Task* find(const support::FlatConfig& config) {
  const std::string given = task_text(config);
  if (given.empty()) return all().front();
  for (const Task* task : all())
    if (given == quoted(task->name)) return task;
  return nullptr;
}

}  // namespace

const std::vector<const Task*>& all() {
#define HINGE_TASK(folder) &folder::task(),
  static const std::vector<const Task*> kAll = {HINGE_TASKS(HINGE_TASK)};
#undef HINGE_TASK
  return kAll;
}

const Task& of_config(const support::FlatConfig& config, const std::string& file) {
  if (const Task* task = find(config)) return *task;
  const std::string given = task_text(config);
  std::vector<std::string> words;
  for (const Task* task : all()) {
    if (!task->former_name.empty() && given == quoted(task->former_name))
      throw support::ConfigError(fmt::format("{}: task is {}; it is called {} now", file, given, quoted(task->name)));
    words.push_back(quoted(task->name));
  }
  const std::optional<std::string> meant = support::nearest(given, words);
  throw support::ConfigError(fmt::format("{}: task is {}; allowed are {}{}", file, given, fmt::join(words, " and "),
                                         meant ? fmt::format("; did you mean {}?", *meant) : ""));
}

const Task& of_config(const std::string& file) { return of_config(support::flatten_config(support::read_file(file), file), file); }

const Task& of_run(const std::string& run) {
  train::require_run(run);
  return of_config(train::config_path(run));
}

void require_task(const std::string& run, const std::string& task, const std::string& command) {
  if (const Task& found = of_run(run); found.name != task)
    throw std::runtime_error(fmt::format("'{}' is a {} run; {} takes a {} run", run, found.name, command, task));
}

const experiment::ScoreFormat& score_format(const experiment::RunSummary& run) {
  static const experiment::ScoreFormat kPlain = {[](double score) { return fmt::format("{:.4g}", score); }, {}};
  const Task* task = find(run.config);
  return task ? task->scores : kPlain;
}

experiment::Report compare(std::vector<experiment::RunSummary> runs, const std::string& title, const std::string& within) {
  const auto find = [](const experiment::RunSummary& run) { return &of_config(run.config, train::config_path(run.folder)); };
  const Task& task = *find(runs.front());
  for (const experiment::RunSummary& run : runs)
    if (const Task& other = *find(run); &other != &task)
      throw std::runtime_error(
          fmt::format("'{}' is a {} run, '{}' is a {} run: give runs of one task", runs.front().folder, task.name, run.folder, other.name));
  tell_apart(runs);
  std::vector<experiment::ReportSection> sections;
  if (task.report_sections) sections = task.report_sections(runs, within);
  return {.title = title.empty() ? task.report_title : title,
          .subtitle = fmt::format("{} run{} side by side", runs.size(), runs.size() == 1 ? "" : "s"),
          .runs = std::move(runs),
          .scores = task.scores,
          .curves = task.curves,
          .sections = std::move(sections)};
}

}  // namespace hinge::tasks
