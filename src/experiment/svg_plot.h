// Charts as SVG text: grouped bars, and panels of lines with spread over a linear, logarithmic or named x. Colours can be told apart by
// colour-blind readers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hinge::experiment {

// A horizontal dashed line with a label, for example the rate of a known library.
struct ReferenceLine {
  std::string label;
  double value = 0;
  double deviation = 0;  // half the height of the band around it; line charts only
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
  std::string label;                                    // empty: not in the legend
  std::vector<std::pair<double, double>> points;        // (x, y); a NaN breaks the line
  size_t colour = 0;                                    // number in the palette
  bool reference = false;                               // dashed and dark: what the others are held against
  std::vector<double> deviations = {};                  // half the height of the band at each point; empty: no band
  std::vector<std::pair<double, double>> samples = {};  // the single measurements, small
  std::vector<double> crosses = {};                     // x of measurements that have no y: crosses at the bottom
};

struct LinePanel {
  std::string title = {};
  std::vector<LineSeries> series;
  std::vector<ReferenceLine> references = {};                  // named in the legend
  std::vector<std::pair<double, std::string>> top_ticks = {};  // a second x axis on top: x and label
};

// Panels side by side, three in a row at most, with the same axes. A label that occurs in several panels stands once in the legend.
struct LineChart {
  std::string title, subtitle, x_label, y_label;
  bool log_x = false, log_y = false;
  bool from_zero = false;  // the y axis begins at zero; otherwise it covers the data only
  std::vector<LinePanel> panels;
  std::vector<double> x_ticks = {};       // empty: round numbers
  std::vector<std::string> x_names = {};  // if there are any, x is a place in this list, and nothing is drawn between the places
  std::string top_label = {};             // of the second x axis
  std::string cross_label = {};           // what a cross means
  std::optional<double> y_from = {};      // the y axis begins here; a point below it becomes a triangle at the bottom
};

// Both throw std::invalid_argument for a chart without data, with uneven series, or with numbers <= 0 on a logarithmic axis.
std::string render(const BarChart&);
std::string render(const LineChart&);

// Evenly spaced round numbers (1, 2, 2.5 or 5 times a power of ten apart) from at most `low` to at least `high`, about `wanted` of them.
std::vector<double> nice_ticks(double low, double high, int wanted = 6);

// 1, 2 and 5 times powers of ten within [low, high], or powers of ten only where those would be many, or round numbers in a narrow range.
std::vector<double> log_ticks(double low, double high);

}  // namespace hinge::experiment
