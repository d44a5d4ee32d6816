// How far a sweep is: a table that is redrawn on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/progress.h"

namespace hinge::experiment {

struct SweepState {
  struct Row {
    std::string point;
    std::string doing;            // "training", "measuring test"
    int64_t step = 0, steps = 0;  // steps 0: not known yet
    double seconds = 0;           // since it was begun here
    double left = 0;              // seconds; NaN: not known yet
  };
  int64_t done = 0, diverged = 0, failed = 0, waiting = 0, elsewhere = 0;
  double left = 0;        // seconds for the whole; NaN: not known yet
  std::vector<Row> rows;  // of what runs here

  int64_t all() const { return done + diverged + failed + waiting + elsewhere + static_cast<int64_t>(rows.size()); }
};

class SweepDisplay {
 public:
  SweepDisplay(std::string title, support::ProgressOutput output);
  ~SweepDisplay();  // leaves no table behind
  SweepDisplay(const SweepDisplay&) = delete;
  SweepDisplay& operator=(const SweepDisplay&) = delete;

  // True if update() would show something now: a few times a second on a terminal, never elsewhere.
  bool due() const;
  void update(const SweepState& state);
  // A line that stays, above the table.
  void note(std::string_view text);

 private:
  void clear();

  std::string title_;
  support::ProgressOutput output_;
  std::string shown_;  // the table as it was drawn last
  int lines_ = 0;      // of it on the terminal
  double drawn_;
};

// "12 done, 1 diverged, 2 running, 55 waiting; ETA 1:02:03"
std::string summary(const SweepState& state);

}  // namespace hinge::experiment
