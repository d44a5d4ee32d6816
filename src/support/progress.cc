// Progress bar and plain lines.
#include "support/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace hinge::support {
namespace {

constexpr double kRedraw = 0.1;  // seconds between two pictures of the bar
constexpr int kWidestBar = 30, kNarrowestBar = 4;
constexpr const char* kClear = "\r\x1b[K";

int letters(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      const std::string_view text = value;
      return text.find("UTF-8") != std::string_view::npos || text.find("utf8") != std::string_view::npos;
    }
  return false;
}

std::string bar(double share, int width, bool unicode) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = share > 0 ? std::min(share, 1.0) * width : 0;  // NaN is an empty bar
  const int whole = static_cast<int>(filled);
  std::string text;
  for (int i = 0; i < whole; ++i) text += unicode ? "█" : "#";
  const int eighth = static_cast<int>((filled - whole) * 8);
  int used = whole;
  if (unicode && whole < width && eighth > 0) text += kEighths[eighth], ++used;
  return (unicode ? "▕" : "[") + text + std::string(static_cast<size_t>(width - used), ' ') + (unicode ? "▏" : "]");
}

std::string cut_text(std::string_view text, int columns) {
  std::string out;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 && columns-- <= 0) break;
    out += c;
  }
  return out;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return "?";
  const auto whole = static_cast<int64_t>(std::lround(std::max(0.0, seconds)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60) : fmt::format("{}:{:02}", minutes, whole % 60);
}

ProgressOutput ProgressOutput::standard_error() {
  const char* kind = std::getenv("TERM");
  const bool terminal = ::isatty(STDERR_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
  return {.write =
              [](std::string_view text) {
                std::fwrite(text.data(), 1, text.size(), stderr);
                std::fflush(stderr);
              },
          .seconds = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); },
          .columns =
              [] {
                winsize size{};
                return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? static_cast<int>(size.ws_col) : 80;
              },
          .terminal = terminal,
          .unicode = locale_is_utf8()};
}

Progress::Progress(std::string title, int64_t total, int64_t first, ProgressOutput output, double plain_interval)
    : title_(std::move(title)),
      total_(total),
      first_(first),
      step_(first),
      output_(std::move(output)),
      interval_(output_.terminal ? kRedraw : plain_interval),
      begun_(output_.seconds()),
      shown_(output_.terminal ? -std::numeric_limits<double>::infinity() : begun_) {}

Progress::~Progress() { clear(); }

bool Progress::due() const { return output_.seconds() - shown_ >= interval_; }

void Progress::update(int64_t step, const Values& values) {
  step_ = step;
  values_ = values;
  pending_ = true;
  if (finished_ || !due()) return;
  shown_ = output_.seconds();
  pending_ = false;
  if (output_.terminal)
    draw();
  else
    output_.write(line(std::numeric_limits<int>::max()) + "\n");
}

void Progress::aside(const std::string& text) {
  aside_ = text;
  if (!output_.terminal || finished_ || !due()) return;
  shown_ = output_.seconds();
  draw();
}

void Progress::note(std::string_view text) {
  const bool redraw = drawn_;
  clear();
  output_.write(std::string(text) + "\n");
  if (redraw) draw();
}

void Progress::finish() {
  clear();
  if (!output_.terminal && pending_) output_.write(line(std::numeric_limits<int>::max()) + "\n");
  pending_ = false;
  finished_ = true;
}

// Title, bar, step/total, values, time left. Numbers say more than the bar, which gets the room that they leave; where they do not fit
// either, values go from the last, then what sticks out.
std::string Progress::line(int columns) const {
  const double share = total_ > 0 ? static_cast<double>(step_) / static_cast<double>(total_) : 0;
  const double elapsed = output_.seconds() - begun_;
  const double left = elapsed * static_cast<double>(total_ - step_) / static_cast<double>(step_ - first_);
  const std::string count = fmt::format("{}/{}", step_, total_);
  const std::string time = step_ <= first_  ? ""
                           : step_ < total_ ? fmt::format("  ETA {}", duration_text(left))
                                            : fmt::format("  {}", duration_text(elapsed));

  int room = columns - letters(title_) - letters(count) - letters(time) - (title_.empty() ? 1 : 2);
  std::vector<std::string> parts;
  for (const auto& [name, value] : values_) parts.push_back(fmt::format("  {} {}", name, value));
  if (!aside_.empty()) parts = {"  " + aside_};
  std::string shown;
  for (const std::string& part : parts) {
    if (letters(part) > room) break;
    room -= letters(part);
    shown += part;
  }
  std::string text = title_ + (title_.empty() ? "" : " ");
  if (output_.terminal && room >= kNarrowestBar + 2) text += bar(share, std::min(room - 2, kWidestBar), output_.unicode) + " ";
  return cut_text(text + count + shown + time, columns);
}

void Progress::draw() {
  output_.write(kClear + line(output_.columns() - 1));
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) output_.write(kClear);
  drawn_ = false;
}

}  // namespace hinge::support
