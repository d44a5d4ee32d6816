#include "watch/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include "experiment/markup.h"
#include "experiment/watch_text.h"
#include "support/progress.h"

namespace hinge::watch {
namespace {

using experiment::CurvePoints;
using experiment::letter_count;
using experiment::printable;
using experiment::WatchedRun;

constexpr std::array<const char*, 9> kTitles = {"run", "state", "step", "left", "score", "best", "speed", "peak", "loss"};
constexpr size_t kNarrowestName = 12, kSparkline = 16;
constexpr size_t kLogLines = 4;  // below the list

Style style_of(const std::string& state) {
  if (state == "running") return Style::good;
  return state == "done" || state == "stopped" ? Style::plain : Style::bad;
}

std::string padded(std::string text, size_t width, bool right = false) {
  const size_t letters = letter_count(text);
  if (letters > width) return support::cut_text(text, static_cast<int>(width));
  const std::string spaces(width - letters, ' ');
  return right ? spaces + text : text + spaces;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// No line is wider than the screen.
Line cut(Line line, int columns) {
  auto room = static_cast<size_t>(std::max(0, columns));
  for (Span& span : line) {
    span.text = support::cut_text(span.text, static_cast<int>(room));
    room -= std::min(room, letter_count(span.text));
  }
  return line;
}

// The words of a config that match a filter: "h=relu".
bool matches(const WatchedRun& run, const std::string& filter) {
  if (filter.empty()) return true;
  const std::string wanted = lower(filter);
  if (lower(run.id).find(wanted) != std::string::npos || run.state().find(wanted) != std::string::npos ||
      lower(run.note).find(wanted) != std::string::npos)
    return true;
  for (const auto& [key, value] : run.summary.config)
    if (lower(key + "=" + experiment::unquoted(value)).find(wanted) != std::string::npos) return true;
  return false;
}

}  // namespace

Screen::Screen(experiment::WatchedFolder& folder, experiment::ScoreFormatOf format_of, bool unicode)
    : folder_(folder), format_of_(std::move(format_of)), unicode_(unicode) {}

std::string Screen::cell(const WatchedRun& run, Column column) const {
  switch (column) {
    case Column::run: return printable(run.id);
    case Column::state: return run.state();
    case Column::step: return fmt::format("{}/{}", run.step, run.steps());
    case Column::left: return experiment::time_left_text(run);
    case Column::score: return experiment::score_text(run, format_of_(run.summary));
    case Column::best: return experiment::best_text(run, format_of_(run.summary));
    case Column::speed: return experiment::speed_text(run);
    case Column::peak: return experiment::peak_share_text(run);
    case Column::loss: return std::isfinite(run.loss) ? fmt::format("{:.4g}", run.loss) : "-";
  }
  return "";
}

bool Screen::before(const WatchedRun& a, const WatchedRun& b) const {
  const auto number = [&](const WatchedRun& run) {
    switch (sort_) {
      case Column::step: return static_cast<double>(run.step);
      case Column::left: return run.seconds_left;
      case Column::score:
      case Column::best: return run.summary.status.best.value_or(experiment::kUnknown);
      case Column::speed: return run.items_per_second;
      case Column::peak: return run.peak_share;
      case Column::loss: return run.loss;
      default: return 0.0;
    }
  };
  if (sort_ == Column::run) return descending_ ? b.id < a.id : a.id < b.id;
  if (sort_ == Column::state && a.state() != b.state()) return descending_ ? b.state() < a.state() : a.state() < b.state();
  const double x = number(a), y = number(b);
  if (std::isfinite(x) != std::isfinite(y)) return std::isfinite(x);  // what is not known comes last, whichever way it is sorted
  if (std::isfinite(x) && x != y) return descending_ ? x > y : x < y;
  return a.id < b.id;
}

std::vector<const WatchedRun*> Screen::shown() const {
  std::vector<const WatchedRun*> runs;
  for (const WatchedRun& run : folder_.runs())
    if ((show_archived_ || !run.archived) && matches(run, filter_)) runs.push_back(&run);
  std::sort(runs.begin(), runs.end(), [&](const WatchedRun* a, const WatchedRun* b) { return before(*a, *b); });
  return runs;
}

void Screen::move(int by) {
  const std::vector<const WatchedRun*> runs = shown();
  if (runs.empty()) return;
  const auto now = std::find_if(runs.begin(), runs.end(), [&](const WatchedRun* run) { return run->id == selected_; });
  const auto place = now == runs.end() ? 0 : static_cast<int>(now - runs.begin()) + by;
  selected_ = runs[static_cast<size_t>(std::clamp(place, 0, static_cast<int>(runs.size()) - 1))]->id;
}

void Screen::choose_sort(int by) {
  constexpr int kCount = static_cast<int>(kTitles.size());
  sort_ = static_cast<Column>((static_cast<int>(sort_) + by + kCount) % kCount);
  // What one looks for first: high scores and speeds, low losses.
  descending_ = sort_ == Column::step || sort_ == Column::score || sort_ == Column::best || sort_ == Column::speed || sort_ == Column::peak;
}

bool Screen::type(Key key, char character) {
  if (key == Key::character && static_cast<unsigned char>(character) >= 0x20)
    filter_ += character;
  else if (key == Key::erase) {
    while (!filter_.empty() && (static_cast<unsigned char>(filter_.back()) & 0xC0) == 0x80) filter_.pop_back();
    if (!filter_.empty()) filter_.pop_back();
  } else if (key == Key::back)
    filter_.clear(), typing_ = false;
  else if (key == Key::open)
    typing_ = false;
  else
    return false;
  return true;
}

bool Screen::press(Key key, char character) {
  if (typing_ && type(key, character)) return true;
  switch (key) {
    case Key::up: move(-1); break;
    case Key::down: move(1); break;
    case Key::page_up: move(-page_); break;
    case Key::page_down: move(page_); break;
    case Key::first: move(-1'000'000); break;
    case Key::last: move(1'000'000); break;
    case Key::open: open_ = !open_ && !selected_.empty(); break;
    case Key::back:
    case Key::erase:
      if (!std::exchange(open_, false)) filter_.clear();
      break;
    case Key::quit: return false;
    case Key::character:
      switch (character) {
        case 'q':
          if (open_)
            open_ = false;
          else
            return false;
          break;
        case 'k': move(-1); break;
        case 'j': move(1); break;
        case 's': choose_sort(1); break;
        case 'S': choose_sort(-1); break;
        case 'r': descending_ = !descending_; break;
        case 'a': show_archived_ = !show_archived_; break;
        case 'o':
        case ' ': open_ = !open_ && !selected_.empty(); break;
        case '/': typing_ = true, open_ = false; break;
        default: break;
      }
      break;
  }
  return true;
}

Line Screen::title(const std::string& now, int columns) const {
  std::map<std::string, int> states;
  int archived = 0;
  for (const WatchedRun& run : folder_.runs()) run.archived && !show_archived_ ? ++archived : ++states[run.state()];
  std::string text =
      fmt::format(" hinge watch {}   {} run{}", printable(folder_.folder()), folder_.runs().size(), folder_.runs().size() == 1 ? "" : "s");
  for (const char* state : {"running", "stale", "done", "stopped", "killed", "diverged", "failed", "unknown"})
    if (states[state] > 0) text += fmt::format(", {} {}", states[state], state);
  if (archived > 0) text += fmt::format(", {} archived", archived);
  const auto width = static_cast<size_t>(std::max(0, columns));
  if (letter_count(text) + now.size() + 2 <= width) text = padded(text, width - now.size() - 1) + now;
  return {{padded(text, width), Style::title}};
}

std::vector<std::string> Screen::chart(const CurvePoints& points, int rows, int columns) const {
  if (points.size() < 2 || rows < 2 || columns < 10) return {};
  double low = points.front().second, high = low;
  for (const auto& [step, value] : points) low = std::min(low, value), high = std::max(high, value);
  const std::string top = fmt::format("{:.4g} ", high), bottom = fmt::format("{:.4g} ", low);
  const size_t margin = std::max(top.size(), bottom.size()), width = static_cast<size_t>(columns) - margin;
  // A letter for each step of the screen: the value of the curve there, between its neighbours.
  std::vector<double> heights;
  size_t next = 0;
  const double first = static_cast<double>(points.front().first), span = static_cast<double>(points.back().first) - first;
  for (size_t i = 0; i < width; ++i) {
    const double step = first + span * (static_cast<double>(i) + 0.5) / static_cast<double>(width);
    while (next + 1 < points.size() && static_cast<double>(points[next].first) < step) ++next;
    const auto& after = points[next];
    const auto& prior = points[next == 0 ? 0 : next - 1];
    const auto gap = static_cast<double>(after.first - prior.first);
    const double share = gap > 0 ? std::clamp((step - static_cast<double>(prior.first)) / gap, 0.0, 1.0) : 0;
    const double value = prior.second + share * (after.second - prior.second);
    heights.push_back(high > low ? (value - low) / (high - low) * rows : 0);
  }
  static constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<std::string> lines;
  for (int row = 0; row < rows; ++row) {
    std::string line = row == 0 ? padded(top, margin, true) : row == rows - 1 ? padded(bottom, margin, true) : std::string(margin, ' ');
    const double base = rows - 1 - row;  // of this row
    for (const double height : heights) {
      const double part = std::clamp(std::max(height, 0.125) - base, 0.0, 1.0);
      if (unicode_)
        line += kBlocks[static_cast<size_t>(std::lround(part * 8))];
      else
        line += part >= 0.5 || (row == rows - 1 && part > 0) ? '#' : ' ';
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<Line> Screen::details(const WatchedRun& run, int rows, int columns) const {
  std::vector<Line> lines;
  const auto add = [&](const std::string& text, Style style = Style::plain) { lines.push_back({{text, style}}); };
  const auto fact = [&](const char* name, const std::string& value, Style style = Style::plain) {
    if (!value.empty() && value != "-") lines.push_back({{padded(name, 8), Style::quiet}, {printable(value), style}});
  };
  add(padded(" " + printable(run.id), static_cast<size_t>(std::max(0, columns))), Style::title);
  const double share = run.steps() > 0 ? static_cast<double>(run.step) / static_cast<double>(run.steps()) : 0;
  lines.push_back({{padded("state", 8), Style::quiet},
                   {run.state(), style_of(run.state())},
                   {fmt::format("  {} {}/{}", support::bar(share, 20, unicode_), run.step, run.steps()), Style::plain}});
  fact("left", cell(run, Column::left));
  fact("score", cell(run, Column::score));
  fact("best", run.summary.status.best_step ? fmt::format("{} at step {}", cell(run, Column::best), *run.summary.status.best_step)
                                            : cell(run, Column::best));
  fact("speed", std::isfinite(run.peak_share)
                    ? fmt::format("{}, {} of the machine's peak", cell(run, Column::speed), cell(run, Column::peak))
                    : cell(run, Column::speed));
  fact("why", run.summary.status.message, Style::bad);
  for (const std::string& problem : run.summary.problems) fact("problem", problem, Style::bad);
  fact("note", run.note);
  fact("resume", experiment::resume_command(run));
  const int left = rows - static_cast<int>(lines.size()) - 1;
  if (const int height = std::min(left / 2, 12); height >= 3) {
    const CurvePoints losses = folder_.curve(run, "train/loss", static_cast<size_t>(columns));
    const std::vector<std::string> picture = chart(losses, height - 2, columns);
    if (!picture.empty()) {
      add("");
      add(fmt::format("loss of training, steps {} to {}", losses.front().first, losses.back().first), Style::quiet);
      for (const std::string& line : picture) add(line, Style::good);
    }
  }
  if (const int room = rows - static_cast<int>(lines.size()) - 3; room > 0) {
    const std::vector<std::string> log = folder_.log(run, static_cast<size_t>(room));
    if (!log.empty()) add(""), add("last lines of output", Style::quiet);
    for (const std::string& text : log) add(printable(text));
  }
  return lines;
}

std::vector<Line> Screen::list(int rows, int columns, const std::string& now) {
  std::vector<Line> lines = {title(now, columns)};
  const std::vector<const WatchedRun*> runs = shown();
  if (!runs.empty() && std::none_of(runs.begin(), runs.end(), [&](const WatchedRun* run) { return run->id == selected_; }))
    selected_ = runs.front()->id;
  for (const experiment::WatchedSweep& sweep : folder_.sweeps())
    if (std::ssize(lines) < std::min(4, rows / 4))
      lines.push_back(
          {{" sweep ", Style::quiet},
           {printable(sweep.id) + "  ", Style::plain},
           {printable(sweep.problem.empty() ? sweep.state : sweep.problem), sweep.problem.empty() ? Style::quiet : Style::bad}});

  // The names give way first, then columns from the right.
  std::vector<size_t> widths;
  for (const char* name : kTitles) widths.push_back(letter_count(name) + 1);
  for (const WatchedRun* run : runs)
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], letter_count(cell(*run, static_cast<Column>(i))));
  const auto total = [&](size_t count) {
    size_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum += widths[i] + 2;
    return sum;
  };
  const auto width = static_cast<size_t>(std::max(0, columns));
  size_t count = widths.size();
  if (total(count) > width) widths[0] = std::max(kNarrowestName, widths[0] - std::min(widths[0], total(count) - width));
  while (count > 1 && total(count) > width + 2) --count;
  const bool spark = count == widths.size() && total(count) + kSparkline <= width;

  std::string header;
  for (size_t i = 0; i < count; ++i) {
    const bool sorted = static_cast<size_t>(sort_) == i;
    header += padded(std::string(kTitles[i]) + (sorted ? (descending_ ? "v" : "^") : ""), widths[i], i >= 2) + "  ";
  }
  lines.push_back({{padded(header, width), Style::header}});

  const int below = rows >= 16 ? static_cast<int>(kLogLines) + 1 : 0;
  page_ = std::max(1, rows - static_cast<int>(lines.size()) - below - 1);
  const auto place = static_cast<size_t>(
      std::find_if(runs.begin(), runs.end(), [&](const WatchedRun* run) { return run->id == selected_; }) - runs.begin());
  const auto page = static_cast<size_t>(page_);
  if (place < top_) top_ = place;
  if (place >= top_ + page) top_ = place - page + 1;
  if (top_ + page > runs.size()) top_ = runs.size() > page ? runs.size() - page : 0;
  for (size_t r = top_; r < std::min(runs.size(), top_ + page); ++r) {
    const WatchedRun& run = *runs[r];
    const bool chosen = run.id == selected_;
    Line line;
    for (size_t i = 0; i < count; ++i) {
      const Style style = chosen ? Style::selected : i == 1 ? style_of(run.state()) : run.archived ? Style::quiet : Style::plain;
      line.push_back({padded(cell(run, static_cast<Column>(i)), widths[i], i >= 2) + "  ", style});
    }
    if (spark)
      line.push_back(
          {padded(experiment::sparkline(run.losses, kSparkline, unicode_), width - total(count)), chosen ? Style::selected : Style::good});
    lines.push_back(std::move(line));
  }
  if (runs.empty())
    lines.push_back({{folder_.runs().empty() ? " No runs yet: 'hinge train CONFIG' makes them." : " No run matches.", Style::quiet}});
  while (std::ssize(lines) < rows - below - 1) lines.push_back({});
  if (const WatchedRun* run = folder_.find(selected_); below > 0 && run != nullptr) {
    lines.push_back({{padded(fmt::format("{} {}", unicode_ ? "──" : "--", printable(run->id)), width), Style::quiet}});
    for (const std::string& text : folder_.log(*run, kLogLines)) lines.push_back({{printable(text), Style::plain}});
  }
  return lines;
}

std::vector<Line> Screen::draw(int rows, int columns, const std::string& now) {
  const WatchedRun* run = open_ ? folder_.find(selected_) : nullptr;
  open_ = run != nullptr;
  std::vector<Line> lines = open_ ? details(*run, rows, columns) : list(rows, columns, now);
  lines.resize(static_cast<size_t>(std::max(0, rows - 1)));
  std::string help = typing_
                         ? fmt::format(" filter: {}_   (name, state, note or key=value; Enter keeps it, Esc clears it)", printable(filter_))
                     : open_ ? " Enter back   Up/Down other runs   q back"
                             : " Enter open   s sort   r reverse   / filter   a archived   q quit";
  if (!typing_ && !open_ && !filter_.empty()) help += fmt::format("   filter: {}", printable(filter_));
  if (rows > 0) lines.push_back({{padded(help, static_cast<size_t>(std::max(0, columns))), Style::title}});
  for (Line& line : lines) line = cut(std::move(line), columns);
  return lines;
}

}  // namespace hinge::watch
