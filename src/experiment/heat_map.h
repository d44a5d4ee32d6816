// A table of weights as an SVG picture with names on both axes, such as the tokens that read and those that are read.
#pragma once

#include <string>
#include <vector>

namespace hinge::experiment {

struct HeatMap {
  std::string title, subtitle, x_label, y_label;
  std::vector<std::string> columns, rows;  // names, from the left and from the top
  // [rows, columns]. White is 0; positive values are blue, negative ones orange, and the darkest of both is the largest absolute value. A
  // map with negative values has a legend that says so.
  std::vector<double> values;
};

// Throws std::invalid_argument for a map without rows or columns, with another number of values, or with one that is not finite.
std::string render(const HeatMap&);

}  // namespace hinge::experiment
