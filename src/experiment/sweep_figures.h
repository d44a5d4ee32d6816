// The figures of a sweep, from its results to a chart. A point stands for the runs that share its x, line and panel; what is left over,
// as a rule the seed, is its spread.
#pragma once

#include "experiment/svg_plot.h"
#include "experiment/sweep_data.h"

namespace hinge::experiment {

// Throws support::ConfigError if the figure asks for what the sweep does not have.
LineChart draw(const SweepData& data, const FigureConfig& figure);

// Whether there is anything to draw yet.
bool has_points(const LineChart& chart);

}  // namespace hinge::experiment
