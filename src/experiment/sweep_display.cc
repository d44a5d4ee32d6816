#include "experiment/sweep_display.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "experiment/runs.h"

namespace hinge::experiment {
namespace {

constexpr double kRedraw = 0.5;  // seconds
constexpr int kBar = 20;

std::string time_left(double seconds) { return std::isnan(seconds) ? "?" : support::duration_text(seconds); }

}  // namespace

std::string summary(const SweepState& state) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(state.done, "done");
  add(state.diverged, "diverged");
  add(state.failed, "failed");
  add(static_cast<int64_t>(state.rows.size()), "running");
  add(state.elsewhere, "running elsewhere");
  add(state.waiting, "waiting");
  const bool more = !state.rows.empty() || state.waiting > 0;
  return fmt::format("{}{}", fmt::join(parts, ", "), more && !std::isnan(state.left) ? "; ETA " + time_left(state.left) : "");
}

SweepDisplay::SweepDisplay(std::string title, support::ProgressOutput output)
    : title_(std::move(title)), output_(std::move(output)), drawn_(-std::numeric_limits<double>::infinity()) {}

SweepDisplay::~SweepDisplay() { clear(); }

bool SweepDisplay::due() const { return output_.terminal && output_.seconds() - drawn_ >= kRedraw; }

void SweepDisplay::update(const SweepState& state) {
  if (!output_.terminal) return;
  const auto all = static_cast<double>(std::max<int64_t>(1, state.all()));
  std::string text = fmt::format(
      "{} {} {}\n", title_, support::bar(static_cast<double>(state.done + state.diverged) / all, kBar, output_.unicode), summary(state));
  Table table{{"", "", "step", "time", "ETA"}, {}};
  for (const SweepState::Row& row : state.rows)
    table.rows.push_back({"  " + row.point, row.doing, row.steps > 0 ? fmt::format("{}/{}", row.step, row.steps) : "-",
                          support::duration_text(row.seconds), time_left(row.left)});
  if (!table.rows.empty()) text += table_text(table);
  clear();
  drawn_ = output_.seconds();
  // A line that is broken by the terminal would spoil the count of lines.
  const int columns = output_.columns() - 1;
  size_t begin = 0;
  shown_.clear();
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    shown_ += support::cut_text(std::string_view(text).substr(begin, end - begin), columns) + "\n";
    begin = end + 1, ++lines_;
  }
  output_.write(shown_);
}

void SweepDisplay::note(std::string_view text) {
  const std::string table = std::exchange(shown_, "");
  const int lines = lines_;
  clear();
  output_.write(std::string(text) + "\n");
  if (lines == 0) return;
  output_.write(table);
  shown_ = table, lines_ = lines;
}

void SweepDisplay::clear() {
  if (lines_ > 0) output_.write(fmt::format("\x1b[{}F\x1b[J", lines_));
  lines_ = 0;
}

}  // namespace hinge::experiment
