// Reads run folders without disturbing those that train into them.
#include "experiment/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>

#include "support/atomic_file.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string count_text(double count) { return count < 1e6 ? fmt::format("{:.0f} k", count / 1e3) : fmt::format("{:.1f} M", count / 1e6); }

constexpr std::string_view kPerSecond = "_per_second";

// What every task's runs have beside their scores, where some run has it. The speeds, "images_per_second", come after the time.
std::vector<ScoreFormat::Column> common_columns(const std::vector<RunSummary>& runs) {
  const auto whole = [](double value) { return fmt::format("{:.0f}", value); };
  std::vector<ScoreFormat::Column> columns = {{"time", "train_seconds", time_text}};
  std::set<std::string> speeds;
  for (const RunSummary& run : runs)
    for (const auto& [name, value] : run.status.values)
      if (name.ends_with(kPerSecond)) speeds.insert(name);
  for (const std::string& name : speeds) columns.push_back({name.substr(0, name.size() - kPerSecond.size()) + "/s", name, whole});
  columns.push_back({"memory", "memory_bytes", [](double bytes) { return fmt::format("{:.0f} MB", bytes / 0x1p20); }});
  columns.push_back({"parameters", "parameters", count_text});
  columns.push_back({"skipped files", "skipped_files", whole});
  return columns;
}

}  // namespace

std::string unquoted(const std::string& value) {
  const bool plain = value.size() >= 2 && value.front() == '"' && value.find('\\') == std::string::npos;
  return plain ? value.substr(1, value.size() - 2) : value;
}

RunSummary read_run(const std::string& folder) {
  train::require_run(folder);
  RunSummary run;
  run.folder = folder;
  const fs::path path = fs::absolute(folder).lexically_normal();
  run.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const auto attempt = [&](const std::function<void()>& read) {
    try {
      read();
    } catch (const std::runtime_error& error) {
      run.problems.emplace_back(error.what());
    }
  };
  run.state = "unknown";
  attempt([&] {
    const std::string config = train::config_path(folder);
    run.config = support::flatten_config(support::read_file(config), config);
  });
  attempt([&] {
    // The lock first: a run that ends between the two looks must not seem killed.
    const bool training = train::is_training(folder);
    run.status = train::read_status(folder);
    run.state = run.status.state == "running" && !training ? "killed" : run.status.state;
  });
  if (fs::exists(train::metrics_path(folder))) attempt([&] { run.metrics = support::read_metrics(train::metrics_path(folder)); });
  return run;
}

std::vector<RunSummary> find_runs(const std::string& folder) {
  if (train::is_run(folder)) return {read_run(folder)};
  std::error_code error;
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (train::is_run(entry.path().string())) folders.push_back(entry.path().string());
  if (error) support::throw_file_error("list", folder, error.value());
  std::sort(folders.begin(), folders.end());
  std::vector<RunSummary> runs;
  for (const std::string& run : folders) runs.push_back(read_run(run));
  return runs;
}

void tell_apart(std::vector<RunSummary>& runs) {
  std::multiset<std::string> names;
  for (const RunSummary& run : runs) names.insert(run.name);
  for (RunSummary& run : runs)
    if (names.count(run.name) > 1) run.name = run.folder;
}

std::vector<support::ConfigDifference> differences(const std::vector<RunSummary>& runs) {
  std::vector<support::FlatConfig> configs;
  for (const RunSummary& run : runs) configs.push_back(run.config);
  return support::config_differences(configs);
}

Table run_table(const std::vector<RunSummary>& runs, const ScoreFormatOf& format_of) {
  Table table{.header = {"run", "state", "step", "best"}, .rows = {}};
  for (const RunSummary& run : runs) {
    const train::RunStatus& status = run.status;
    table.rows.push_back(
        {run.name, run.state, fmt::format("{}/{}", status.step, status.steps), status.best ? format_of(run).best(*status.best) : "-"});
  }
  // A column for each title; a run that has no such value has "-" in it.
  const auto add_column = [&](const std::string& title, const auto& cell) {
    table.header.push_back(title);
    for (size_t i = 0; i < runs.size(); ++i) table.rows[i].push_back(cell(runs[i]));
  };
  const auto cell_of = [](const std::vector<ScoreFormat::Column>& columns, const std::string& title, const RunSummary& run) {
    for (const ScoreFormat::Column& column : columns)
      if (const auto value = run.status.values.find(column.value); column.title == title && value != run.status.values.end())
        return column.text(value->second);
    return std::string("-");
  };
  std::set<std::string> shown;
  for (const RunSummary& with : runs)
    for (const ScoreFormat::Column& column : format_of(with).columns)
      if (with.status.values.contains(column.value) && shown.insert(column.title).second)
        add_column(column.title, [&](const RunSummary& run) { return cell_of(format_of(run).columns, column.title, run); });
  const std::vector<ScoreFormat::Column> common = common_columns(runs);
  for (const ScoreFormat::Column& column : common)
    if (std::any_of(runs.begin(), runs.end(), [&](const RunSummary& run) { return run.status.values.contains(column.value); }))
      add_column(column.title, [&](const RunSummary& run) { return cell_of(common, column.title, run); });
  for (const support::ConfigDifference& difference : differences(runs)) {
    table.header.push_back(difference.key);
    for (size_t i = 0; i < runs.size(); ++i) table.rows[i].push_back(difference.values[i].empty() ? "-" : unquoted(difference.values[i]));
  }
  return table;
}

}  // namespace hinge::experiment
