#include "experiment/watch_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "support/progress.h"
#include "support/utf8.h"

namespace hinge::experiment {

std::string time_left_text(const WatchedRun& run) {
  return std::isfinite(run.seconds_left) ? support::duration_text(run.seconds_left) : "-";
}

std::string speed_text(const WatchedRun& run) {
  return std::isfinite(run.items_per_second) ? fmt::format("{:.0f} {}/s", run.items_per_second, run.items) : "-";
}

std::string peak_share_text(const WatchedRun& run) {
  if (!std::isfinite(run.peak_share)) return "-";
  return fmt::format("{:.{}f}%", 100 * run.peak_share, run.peak_share < 0.1 ? 1 : 0);
}

std::string score_text(const WatchedRun& run, const ScoreFormat& format) {
  const auto& values = run.summary.status.values;
  for (const ScoreFormat::Column& column : format.columns)
    if (const auto value = values.find(column.value); value != values.end() && std::isfinite(value->second))
      return column.text(value->second);
  return "-";
}

std::string best_text(const WatchedRun& run, const ScoreFormat& format) {
  return run.summary.status.best ? format.best(*run.summary.status.best) : "-";
}

std::string sparkline(const CurvePoints& points, size_t width, bool unicode) {
  static constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<const char*, 8> kPlain = {"_", ".", "-", "~", "=", "+", "*", "#"};
  const CurvePoints few = thinned(points, width);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& [step, value] : few) low = std::min(low, value), high = std::max(high, value);
  std::string text;
  for (const auto& [step, value] : few) {
    const double place = high > low ? (value - low) / (high - low) : 0;
    text += (unicode ? kBlocks : kPlain)[static_cast<size_t>(std::lround(place * 7))];
  }
  return text;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = support::find_invalid_utf8(text).value_or(text.size());
    for (size_t i = 0; i < valid; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool c1 = byte == 0xC2 && i + 1 < valid && static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F
      out += byte < 0x20 || byte == 0x7F || c1 ? '?' : text[i];
      if (c1) ++i;
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += '?';
    text.remove_prefix(1);
  }
  return out;
}

std::string shell_word(const std::string& text) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/=,+-:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos && text.front() != '-') return text;
  std::string quoted = text.starts_with('-') ? "./'" : "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string resume_command(const WatchedRun& run) {
  if (run.state() == "done" || run.is_live()) return "";
  return "hinge train --resume " + shell_word(std::filesystem::absolute(run.summary.folder).lexically_normal().string());
}

std::vector<support::ConfigDifference> watched_differences(const std::vector<const WatchedRun*>& runs) {
  std::map<std::string, std::vector<size_t>> tasks;  // places in `runs`
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string task;
    for (const auto& [key, value] : runs[i]->summary.config)
      if (key == "task") task = value;
    tasks[task].push_back(i);
  }
  std::vector<support::ConfigDifference> all;
  for (const auto& [task, places] : tasks) {
    std::vector<support::FlatConfig> configs;
    for (const size_t place : places) configs.push_back(runs[place]->summary.config);
    for (const support::ConfigDifference& difference : support::config_differences(configs)) {
      auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.key == difference.key; });
      if (known == all.end()) known = all.insert(all.end(), {difference.key, std::vector<std::string>(runs.size())});
      for (size_t i = 0; i < places.size(); ++i) known->values[places[i]] = difference.values[i];
    }
  }
  return all;
}

Table watch_table(const std::vector<const WatchedRun*>& runs, const ScoreFormatOf& format_of, bool unicode) {
  Table table{{"run", "state", "step", "left", "score", "best", "speed", "peak", "loss", ""}, {}};
  for (const WatchedRun* run : runs) {
    const ScoreFormat& format = format_of(run->summary);
    table.rows.push_back({printable(run->id), run->state(), fmt::format("{}/{}", run->step, run->steps()), time_left_text(*run),
                          score_text(*run, format), best_text(*run, format), speed_text(*run), peak_share_text(*run),
                          std::isfinite(run->loss) ? fmt::format("{:.4g}", run->loss) : "-", sparkline(run->losses, 16, unicode)});
  }
  for (const support::ConfigDifference& difference : watched_differences(runs)) {
    table.header.push_back(difference.key);
    for (size_t i = 0; i < runs.size(); ++i)
      table.rows[i].push_back(difference.values[i].empty() ? "-" : printable(unquoted(difference.values[i])));
  }
  return table;
}

}  // namespace hinge::experiment
