// Small charts as SVG text: grouped bars, and lines over a linear or logarithmic x. Colours can be told apart by colour-blind readers.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace hinge::experiment {

// A horizontal dashed line with a label, for example the rate of a known library.
struct ReferenceLine {
  std::string label;
  double value = 0;
};

struct BarSeries {
  std::string label;
  std::vector<double> values;  // one a group; NaN leaves its place empty
  size_t colour = 0;           // number in the palette
  bool pale = false;           // a lighter tint of the same colour, for the second of a pair
};

struct BarChart {
  std::string title, subtitle, x_label, y_label;
  std::vector<std::string> groups;
  std::vector<BarSeries> series;
  std::vector<ReferenceLine> references;
};

struct LineSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;  // (x, y); a NaN breaks the line
  size_t colour = 0;
  bool dashed = false;
};

struct LineChart {
  std::string title, subtitle, x_label, y_label;
  bool log_x = false;  // ticks then stand at the points themselves
  std::vector<LineSeries> series;
  std::vector<ReferenceLine> references;
};

// Both throw std::invalid_argument for a chart without data, with uneven series, or with x <= 0 on a logarithmic axis.
std::string render(const BarChart&);
std::string render(const LineChart&);

// Evenly spaced round numbers (1, 2, 2.5 or 5 times a power of ten apart) from at most `low` to at least `high`, about `wanted` of them.
std::vector<double> nice_ticks(double low, double high, int wanted = 6);

}  // namespace hinge::experiment
