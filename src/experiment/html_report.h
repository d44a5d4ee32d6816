// One self-contained HTML page that compares runs: table, curves, config differences, and pictures that the caller gives.
#pragma once

#include <string>
#include <vector>

#include "experiment/runs.h"

namespace hinge::experiment {

struct ReportPicture {
  std::string caption;  // may have several lines
  std::string png;      // the bytes of a PNG file
};

struct ReportSection {
  std::string title, text;
  std::vector<ReportPicture> pictures;
  int picture_width = 0;  // pixels on the page; 0: their own
};

// A chart of one metric of all runs over their steps.
struct ReportCurve {
  std::string metric;  // its name in metrics.jsonl
  std::string title, y_label;
};

struct Report {
  std::string title, subtitle;
  std::vector<RunSummary> runs;
  ScoreFormat scores;               // of all runs
  std::vector<ReportCurve> curves;  // one that no run has is left out
  std::vector<ReportSection> sections;
};

// All text is escaped; nothing is loaded from elsewhere. Throws std::invalid_argument for a picture that is not a PNG.
std::string render_html(const Report& report);

}  // namespace hinge::experiment
