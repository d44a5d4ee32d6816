// The points of a sweep with all that is known of each by name: what figures and tables are made of.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiment/sweep.h"
#include "experiment/sweep_results.h"

namespace hinge::experiment {

struct DataPoint {
  Point point;
  std::optional<PointResult> result;  // nothing: the point is missing
  // Axes with numbers; parameters, flops, seconds, core_hours, steps; measures; the last value of each score; derived quantities. Under
  // their own names and under those that formulas use.
  std::map<std::string, double> quantities = {};

  bool done() const { return result && result->state == kDone; }
  bool diverged() const { return result && result->state == kDiverged; }
  bool failed() const { return result && result->state == kFailed; }
  double quantity(const std::string& name) const;  // NaN if there is none
};

struct SweepData {
  Sweep sweep;
  std::vector<DataPoint> points;             // all of the sweep, in its order
  std::vector<DataPoint> unfolded;           // each of them with every combination of the values of the measured axes
  std::vector<PointResult> strangers;        // results of points that the sweep does not have
  std::vector<std::string> quantities = {};  // that some point has, under the names that formulas use
};

// Throws support::ConfigError for a formula that is wrong or reads what is not there; so do the functions below for what a figure or table
// asks for.
SweepData gather(Sweep sweep, std::vector<PointResult> results);

// Throws, with the names there are, unless some point has this quantity or may still get it. `where` is for the message: "table 'a'".
void require_quantity(const SweepData& data, const std::string& name, const std::string& where);
// Throws, with the names there are, if the sweep has no such axis.
const Axis& require_axis(const SweepData& data, const std::string& name, const std::string& where);

// The points for something that names these axes: the unfolded ones if one of them is measured.
const std::vector<DataPoint>& points_for(const SweepData& data, const std::vector<std::string>& axes);

// Those that pass. `lacking`: what to say of a point that has no such axis.
std::vector<const DataPoint*> select(const std::vector<DataPoint>& points, const PointFilter& where, bool lacking = false);

// The places in the axis' list of the values that the points have, in that order. Points without such an axis count for nothing.
std::vector<size_t> places_of(const Axis& axis, const std::vector<const DataPoint*>& points);
// The place of a point's value in the axis' list; nothing if it has none.
std::optional<size_t> place_of(const Axis& axis, const Point& point);

// An axis whose values set nothing but seeds: points that differ only there are repetitions.
bool is_seed(const Axis& axis);

// For people: "alpha = 0.5", and a word or sentence alone: "relu".
std::string value_label(const Axis& axis, const AxisValue& value);
// For people: an axis' label, "core-hours", or the name itself.
std::string quantity_label(const SweepData& data, const std::string& name);

struct Summary {
  size_t count = 0;
  double mean = 0;       // NaN of nothing
  double deviation = 0;  // the standard deviation of a sample (n - 1); 0 of fewer than two
};
Summary summarise(const std::vector<double>& values);

}  // namespace hinge::experiment
