// What `hinge watch` shows in a terminal, as lines of text, and what its keys do. No terminal here: terminal.h paints it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "experiment/watch.h"

namespace hinge::watch {

enum class Style { plain, title, header, selected, good, bad, quiet };

struct Span {
  std::string text;  // UTF-8 without control characters
  Style style = Style::plain;
};
using Line = std::vector<Span>;

enum class Key { up, down, page_up, page_down, first, last, open, back, erase, quit, character };

class Screen {
 public:
  // `unicode`: the terminal can show other letters than ASCII's.
  Screen(experiment::WatchedFolder& folder, experiment::ScoreFormatOf format_of, bool unicode);

  // At most `rows` lines of at most `columns` letters. `now` is for the title: "16:40:05".
  std::vector<Line> draw(int rows, int columns, const std::string& now);

  // `character` is what Key::character stands for. False: quit.
  bool press(Key key, char character = 0);

 private:
  enum class Column { run, state, step, left, score, best, speed, peak, loss };

  std::vector<const experiment::WatchedRun*> shown() const;  // filtered and sorted
  bool before(const experiment::WatchedRun& a, const experiment::WatchedRun& b) const;
  std::string cell(const experiment::WatchedRun& run, Column column) const;
  void move(int by);
  bool type(Key key, char character);
  void choose_sort(int by);

  std::vector<Line> list(int rows, int columns, const std::string& now);
  std::vector<Line> details(const experiment::WatchedRun& run, int rows, int columns) const;
  Line title(const std::string& now, int columns) const;
  std::vector<std::string> chart(const experiment::CurvePoints& points, int rows, int columns) const;

  experiment::WatchedFolder& folder_;
  experiment::ScoreFormatOf format_of_;
  bool unicode_;
  Column sort_ = Column::run;
  bool descending_ = false, show_archived_ = false, open_ = false, typing_ = false;
  std::string filter_;
  std::string selected_;  // id of a run
  int page_ = 10;         // runs on the screen
  size_t top_ = 0;        // the first of them
};

}  // namespace hinge::watch
