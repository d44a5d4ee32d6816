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
#include "train/task_kind.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;

std::string percent_text(double share) { return fmt::format("{:.2f}%", 100 * share); }

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string count_text(double count) { return count < 1e6 ? fmt::format("{:.0f} k", count / 1e3) : fmt::format("{:.1f} M", count / 1e6); }

// The numbers of a status that are worth a column, where some run has them.
struct Column {
  const char *title, *value;
  std::string (*text)(double);
};
constexpr Column kColumns[] = {
    {"accuracy", "accuracy", percent_text},
    {"perplexity", "perplexity", [](double value) { return fmt::format("{:.2f}", value); }},
    {"BLEU", "bleu", [](double value) { return fmt::format("{:.1f}", value); }},
    {"averaged perplexity", "averaged_perplexity", [](double value) { return fmt::format("{:.2f}", value); }},
    {"averaged BLEU", "averaged_bleu", [](double value) { return fmt::format("{:.1f}", value); }},
    {"time", "train_seconds", time_text},
    {"images/s", "images_per_second", [](double speed) { return fmt::format("{:.0f}", speed); }},
    {"tokens/s", "tokens_per_second", [](double speed) { return fmt::format("{:.0f}", speed); }},
    {"memory", "memory_bytes", [](double bytes) { return fmt::format("{:.0f} MB", bytes / 0x1p20); }},
    {"parameters", "parameters", count_text},
    {"skipped files", "skipped_files", [](double count) { return fmt::format("{:.0f}", count); }},
};

// A vision run's score is its accuracy, a translation's the loss with its sign changed.
std::string best_text(const RunSummary& run) {
  if (!run.status.best) return "-";
  return train::task_of(run.config) == train::TaskKind::translation ? fmt::format("loss {:.3f}", -*run.status.best)
                                                                    : percent_text(*run.status.best);
}

// Letters, not bytes.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string unquoted(const std::string& value) {
  const bool plain = value.size() >= 2 && value.front() == '"' && value.find('\\') == std::string::npos;
  return plain ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

RunSummary read_run(const std::string& folder) {
  if (!train::is_run(folder)) throw std::runtime_error(fmt::format("'{}' holds no run: there is no config.toml in it", folder));
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

RunTable run_table(const std::vector<RunSummary>& runs) {
  RunTable table{.header = {"run", "state", "step", "best"}, .rows = {}};
  for (const RunSummary& run : runs) {
    const train::RunStatus& status = run.status;
    table.rows.push_back({run.name, run.state, fmt::format("{}/{}", status.step, status.steps), best_text(run)});
  }
  for (const Column& column : kColumns) {
    const auto has = [&](const RunSummary& run) { return run.status.values.contains(column.value); };
    if (std::none_of(runs.begin(), runs.end(), has)) continue;
    table.header.emplace_back(column.title);
    for (size_t i = 0; i < runs.size(); ++i)
      table.rows[i].push_back(has(runs[i]) ? column.text(runs[i].status.values.at(column.value)) : "-");
  }
  for (const support::ConfigDifference& difference : differences(runs)) {
    table.header.push_back(difference.key);
    for (size_t i = 0; i < runs.size(); ++i) table.rows[i].push_back(difference.values[i].empty() ? "-" : unquoted(difference.values[i]));
  }
  return table;
}

std::string table_text(const RunTable& table) {
  std::vector<size_t> widths;
  for (const std::string& title : table.header) widths.push_back(width_of(title));
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) line += cells[i] + std::string(widths[i] - width_of(cells[i]) + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(table.header);
  for (const auto& row : table.rows) add(row);
  return text;
}

}  // namespace hinge::experiment
