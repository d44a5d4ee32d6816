// A sweep: one config changed along named axes, each combination an ordinary run, and what is drawn from their results. Read from
// configs/sweeps/NAME.toml; docs/sweeps.md describes the file. Nothing is trained or drawn here.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hinge::experiment {

using AxisValue = nlohmann::json;                              // a number, a string or a boolean
using Point = std::vector<std::pair<std::string, AxisValue>>;  // axis and value, in the order of the sweep's axes

struct AxisChoice {
  AxisValue value;
  std::vector<std::string> changes;  // of the base config: "model.patch=7"
};

struct Axis {
  std::string name, label;  // label: for people
  std::vector<AxisChoice> choices;
};

struct SweepPoint {
  Point point;
  std::vector<std::string> changes;  // all changes of the base config, in the order in which they apply
};

// The points whose value of each of these axes is among those given.
using PointFilter = std::vector<std::pair<std::string, std::vector<AxisValue>>>;

struct FigureConfig {
  std::string name;                                    // of its file
  std::string title = {};                              // default: the sweep's
  std::string x, y;                                    // an axis, a derived quantity, a score or a measure; x may be "step"
  std::string lines = {}, panels = {};                 // axes; empty: none
  std::string x_label = {}, y_label = {};              // empty: the axis' label or the name
  std::string top_x = {};                              // a derived quantity for a second x axis; empty: none
  bool percent = false, log_x = false, log_y = false;  // percent: y is a share
  std::optional<double> y_from = {};                   // where the y axis begins; nothing: below all points
  PointFilter where = {};                              // only these points; empty: all
  Point reference = {};                                // the points with these values are the line to meet; empty: none
};

struct TableConfig {
  std::string name;  // of its place in Markdown files
  std::string title = {};
  std::vector<std::string> rows;  // axes
  std::string columns = {};       // an axis; empty: one column
  std::string value;              // a derived quantity, a score or a measure
  std::string label = {};         // of the value, for people; empty: its name
  bool percent = false;
  PointFilter where = {};
};

struct Sweep {
  std::string file, name;                // name: of the file, without its ending
  std::string title, text;               // text may be empty
  std::string base;                      // path of the base config; empty: not at hand
  std::string results;                   // path of the results; empty: NAME.jsonl in the folder of the sweep's runs
  std::vector<std::string> reuse;        // paths of other sweeps' results: points with the same config are not run again
  std::vector<std::string> record;       // metrics kept by step, beside all of eval/*
  std::map<std::string, double> assume;  // of data that are not on this machine, for estimates: {"images", 1281167}
  std::vector<Axis> axes;
  std::vector<Axis> measured;  // axes along which each run is measured several times; its points are not run for them
  std::vector<SweepPoint> points;
  std::vector<std::pair<std::string, std::string>> measures;  // name and command of hinge: {"test", "eval --split test"}
  std::vector<std::pair<std::string, std::string>> derived;   // name and formula, where {tokens} is the value of a measured axis
  std::vector<FigureConfig> figures;
  std::vector<TableConfig> tables;

  const Axis* axis(const std::string& axis_name) const;  // among both; null if there is none
  bool is_measured(const std::string& axis_name) const;
};

// Throws support::ConfigError with the file, the line, what is wrong and what is allowed.
Sweep read_sweep(const std::string& file);

// A value for people and for names of files: 0.5, relu, true.
std::string value_text(const AxisValue& value);

// Equal as axis values: numbers by value, so that 1 is 1.0.
bool same_value(const AxisValue& left, const AxisValue& right);
bool same_point(const Point& left, const Point& right);

// The value of an axis of a point; null (the JSON value) if the point has none.
const AxisValue& value_of(const Point& point, const std::string& axis);

// "L=16 h=relu seed=0"
std::string point_text(const Point& point);

}  // namespace hinge::experiment
