// Progress of a long loop: one line with a bar on a terminal, a plain line now and then elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::support {

// Whether what is printed may hold other letters than ASCII's: what LC_ALL, LC_CTYPE or LANG say.
bool locale_is_utf8();

// A bar of `width` letters and its frame for a share of 0 to 1; blocks where they can be shown.
std::string bar(double share, int width, bool unicode = locale_is_utf8());

// Where progress goes, and what it needs to know of it.
struct ProgressOutput {
  std::function<void(std::string_view)> write;
  std::function<double()> seconds;  // a clock that only goes forward
  std::function<int()> columns;     // width of the terminal now
  bool terminal = false;            // a line can be rewritten
  bool unicode = false;

  static ProgressOutput standard_error();
};

class Progress {
 public:
  using Values = std::vector<std::pair<std::string, std::string>>;  // ("loss", "0.512"), the most important first

  // `first` is where the loop begins, not 0 after a resume; `plain_interval` is in seconds.
  Progress(std::string title, int64_t total, int64_t first = 0, ProgressOutput output = ProgressOutput::standard_error(),
           double plain_interval = 10);
  ~Progress();  // leaves no line behind
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough for every step: draws at most ten times a second, or prints one plain line an interval.
  void update(int64_t step, const Values& values);
  // True if update() would show something now, for callers whose values are costly.
  bool due() const;
  // Shows on the bar, instead of the values, what the loop does beside its steps: "evaluating 3/40"; "" ends it. Elsewhere says nothing.
  void aside(const std::string& text);
  // Prints a line that stays, above the bar.
  void note(std::string_view text);
  // Removes the bar. Elsewhere than on a terminal, prints the last state if it has not been printed.
  void finish();

 private:
  std::string line(int columns) const;
  void draw();
  void clear();

  std::string title_;
  int64_t total_, first_, step_;
  ProgressOutput output_;
  double interval_, begun_, shown_;
  Values values_;
  std::string aside_;
  bool drawn_ = false, pending_ = false, finished_ = false;
};

// At most `columns` letters of a text.
std::string cut_text(std::string_view text, int columns);

// "3:07" or "2:03:07".
std::string duration_text(double seconds);

}  // namespace hinge::support
