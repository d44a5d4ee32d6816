// A table of shares as an SVG picture with names on both axes, such as the tokens that read and those that are read.
#pragma once

#include <string>
#include <vector>

namespace hinge::experiment {

struct HeatMap {
  std::string title, subtitle, x_label, y_label;
  std::vector<std::string> columns, rows;  // names, from the left and from the top
  std::vector<double> values;              // [rows, columns]; white is 0 and below, the darkest is the largest of all
};

// Throws std::invalid_argument for a map without rows or columns, with another number of values, or with one that is not finite.
std::string render(const HeatMap&);

}  // namespace hinge::experiment
