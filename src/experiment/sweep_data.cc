#include "experiment/sweep_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "experiment/formula.h"
#include "support/config.h"
#include "support/nearest.h"

namespace hinge::experiment {
namespace {

// What every result has.
struct Common {
  const char *name, *label;
  double (*value)(const PointResult&);
};
constexpr std::array<Common, 5> kCommon = {{
    {"parameters", "parameters", [](const PointResult& result) { return static_cast<double>(result.parameters); }},
    {"flops", "FLOPs of training", [](const PointResult& result) { return result.flops; }},
    {"seconds", "seconds of training", [](const PointResult& result) { return result.seconds; }},
    {"core_hours", "core-hours of training", [](const PointResult& result) { return result.core_hours; }},
    {"steps", "training steps", [](const PointResult& result) { return static_cast<double>(result.steps); }},
}};

bool is_number(const AxisValue& value) { return value.is_number(); }

void add(DataPoint& point, const std::string& name, double value) {
  if (!std::isfinite(value)) return;
  point.quantities.emplace(name, value);
  point.quantities.emplace(formula_name(name), value);
}

DataPoint make_point(const Point& point, std::optional<PointResult> result) {
  DataPoint made{point, std::move(result)};
  for (const auto& [axis, value] : point)
    if (is_number(value)) add(made, axis, value.get<double>());
  if (!made.done() && !made.diverged()) return made;
  for (const Common& common : kCommon) add(made, common.name, common.value(*made.result));
  for (const auto& [name, value] : made.result->measures) add(made, name, value);
  for (const auto& [name, values] : made.result->scores)
    if (!values.empty()) add(made, name, values.back().second);
  return made;
}

std::string part_before(const std::string& name, char separator) { return name.substr(0, name.find(separator)); }

// The names that points can have before any of them is done.
std::set<std::string> names_beforehand(const Sweep& sweep) {
  std::set<std::string> names;
  for (const std::vector<Axis>* list : {&sweep.axes, &sweep.measured})
    for (const Axis& axis : *list)
      if (std::any_of(axis.choices.begin(), axis.choices.end(), [](const AxisChoice& choice) { return is_number(choice.value); }))
        names.insert(formula_name(axis.name));
  for (const Common& common : kCommon) names.insert(common.name);
  return names;
}

// Whether a name that no point has could still come: that of a measure or a metric of which there is nothing yet.
bool may_come(const Sweep& sweep, const std::vector<std::string>& known, const std::string& name) {
  const std::string group = part_before(name, '.');
  const auto in_group = [&](const std::string& one) { return part_before(one, '.') == group; };
  if (std::any_of(known.begin(), known.end(), in_group)) return false;
  return group == "eval" ||
         std::any_of(sweep.record.begin(), sweep.record.end(), [&](const auto& one) { return formula_name(one) == name; }) ||
         std::any_of(sweep.measures.begin(), sweep.measures.end(),
                     [&](const auto& measure) { return formula_name(measure.first) == group; });
}

std::string unknown(const char* kind, const std::string& name, const std::vector<std::string>& known) {
  const std::optional<std::string> near = support::nearest(name, known);
  constexpr size_t kMost = 40;
  const std::vector<std::string> some(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(std::min(known.size(), kMost)));
  std::string names = known.empty() ? "none" : fmt::format("{}", fmt::join(some, ", "));
  if (known.size() > kMost) names += fmt::format(" and {} more", known.size() - kMost);
  return fmt::format("there is no {} '{}'.{} There {}: {}", kind, name, near ? fmt::format(" Did you mean '{}'?", *near) : "",
                     known.size() == 1 ? "is" : "are", names);
}

[[noreturn]] void fail(const Sweep& sweep, const std::string& where, const std::string& what) {
  throw support::ConfigError(fmt::format("{}: {}: {}", sweep.file, where, what));
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
}

// "{rule}{tokens}.accuracy" of the point with rule = keys and tokens = 36: keys36.accuracy
std::string filled_in(const Sweep& sweep, std::string formula, const Point& point) {
  for (const Axis& axis : sweep.measured) {
    std::string value = value_text(value_of(point, axis.name));
    for (char& c : value)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';  // as in the names of measures
    replace_all(formula, "{" + axis.name + "}", value);
  }
  return formula;
}

bool is_known(const SweepData& data, const std::string& name) {
  const std::string plain = formula_name(name);
  return std::find(data.quantities.begin(), data.quantities.end(), plain) != data.quantities.end() ||
         may_come(data.sweep, data.quantities, plain);
}

// A formula with names of measured axes. Some of their values may lack what it reads, but not all of them.
void derive_unfolded(SweepData& data, const std::string& name, const std::string& text, const std::string& where) {
  std::map<std::string, Formula> formulas;
  for (DataPoint& point : data.unfolded) {
    const std::string filled = filled_in(data.sweep, text, point.point);
    auto found = formulas.find(filled);
    if (found == formulas.end()) found = formulas.emplace(filled, Formula(filled)).first;
    add(point, name, found->second.value(point.quantities));
  }
  const auto readable = [&](const auto& entry) {
    const std::vector<std::string>& names = entry.second.names();
    return std::all_of(names.begin(), names.end(), [&](const std::string& read) { return is_known(data, read); });
  };
  if (std::any_of(formulas.begin(), formulas.end(), readable)) return;
  for (const std::string& read : formulas.begin()->second.names()) require_quantity(data, read, where);
}

void derive(SweepData& data, const std::string& name, const std::string& text) {
  const std::string where = fmt::format("derived.{}", name);
  if (std::find(data.quantities.begin(), data.quantities.end(), formula_name(name)) != data.quantities.end())
    fail(data.sweep, where, "there already is a quantity of this name; choose another");
  std::string unnamed = text;
  for (const Axis& axis : data.sweep.measured) replace_all(unnamed, "{" + axis.name + "}", "");
  if (const size_t at = unnamed.find('{'); at != std::string::npos)
    fail(data.sweep, where, fmt::format("'{}' is no measured axis", unnamed.substr(at, unnamed.find('}', at) + 1 - at)));
  try {
    if (unnamed.size() == text.size()) {
      const Formula formula(text);
      for (const std::string& read : formula.names()) require_quantity(data, read, where);
      for (std::vector<DataPoint>* points : {&data.points, &data.unfolded})
        for (DataPoint& point : *points) add(point, name, formula.value(point.quantities));
    } else {
      derive_unfolded(data, name, text, where);
    }
  } catch (const std::invalid_argument& error) {
    fail(data.sweep, where, error.what());
  }
  data.quantities.push_back(formula_name(name));
}

// Each point with every combination of the values of the measured axes; none if there are no such axes.
std::vector<DataPoint> unfold(const SweepData& data) {
  std::vector<DataPoint> unfolded;
  if (data.sweep.measured.empty()) return unfolded;
  unfolded = data.points;
  for (const Axis& axis : data.sweep.measured) {
    std::vector<DataPoint> longer;
    for (const DataPoint& point : unfolded)
      for (const AxisChoice& choice : axis.choices) {
        longer.push_back(point);
        longer.back().point.emplace_back(axis.name, choice.value);
        if (is_number(choice.value)) add(longer.back(), axis.name, choice.value.get<double>());
      }
    unfolded = std::move(longer);
  }
  return unfolded;
}

}  // namespace

double DataPoint::quantity(const std::string& name) const {
  const auto found = quantities.find(name);
  return found == quantities.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

SweepData gather(Sweep sweep, std::vector<PointResult> results) {
  SweepData data{std::move(sweep), {}, {}, {}};
  for (const SweepPoint& planned : data.sweep.points) {
    const auto found =
        std::find_if(results.begin(), results.end(), [&](const PointResult& result) { return same_point(result.point, planned.point); });
    if (found == results.end()) {
      data.points.push_back(make_point(planned.point, std::nullopt));
      continue;
    }
    data.points.push_back(make_point(planned.point, std::move(*found)));
    results.erase(found);
  }
  data.strangers = std::move(results);

  std::set<std::string> names = names_beforehand(data.sweep);
  for (const DataPoint& point : data.points)
    for (const auto& quantity : point.quantities) names.insert(formula_name(quantity.first));
  data.quantities.assign(names.begin(), names.end());
  data.unfolded = unfold(data);
  for (const auto& [name, formula] : data.sweep.derived) derive(data, name, formula);
  return data;
}

void require_quantity(const SweepData& data, const std::string& name, const std::string& where) {
  if (!is_known(data, name)) fail(data.sweep, where, unknown("quantity", name, data.quantities));
}

const Axis& require_axis(const SweepData& data, const std::string& name, const std::string& where) {
  if (const Axis* axis = data.sweep.axis(name)) return *axis;
  std::vector<std::string> names;
  for (const std::vector<Axis>* list : {&data.sweep.axes, &data.sweep.measured})
    for (const Axis& axis : *list) names.push_back(axis.name);
  fail(data.sweep, where, unknown("axis", name, names));
}

const std::vector<DataPoint>& points_for(const SweepData& data, const std::vector<std::string>& axes) {
  const bool measured = std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) { return data.sweep.is_measured(axis); });
  return measured ? data.unfolded : data.points;
}

std::vector<const DataPoint*> select(const std::vector<DataPoint>& points, const PointFilter& where, bool lacking) {
  std::vector<const DataPoint*> selected;
  for (const DataPoint& point : points) {
    const bool passes = std::all_of(where.begin(), where.end(), [&](const auto& condition) {
      const AxisValue& value = value_of(point.point, condition.first);
      if (value.is_null()) return lacking;
      return std::any_of(condition.second.begin(), condition.second.end(), [&](const AxisValue& one) { return same_value(one, value); });
    });
    if (passes) selected.push_back(&point);
  }
  return selected;
}

std::optional<size_t> place_of(const Axis& axis, const Point& point) {
  const AxisValue& value = value_of(point, axis.name);
  for (size_t i = 0; i < axis.choices.size(); ++i)
    if (!value.is_null() && same_value(axis.choices[i].value, value)) return i;
  return std::nullopt;
}

std::vector<size_t> places_of(const Axis& axis, const std::vector<const DataPoint*>& points) {
  std::set<size_t> places;
  for (const DataPoint* point : points)
    if (const std::optional<size_t> place = place_of(axis, point->point)) places.insert(*place);
  return {places.begin(), places.end()};
}

bool is_seed(const Axis& axis) {
  return std::all_of(axis.choices.begin(), axis.choices.end(), [](const AxisChoice& choice) {
    return !choice.changes.empty() && std::all_of(choice.changes.begin(), choice.changes.end(), [](const std::string& change) {
      const std::string key = part_before(change, '=');
      return key == "seed" || key.ends_with(".seed");
    });
  });
}

std::string value_label(const Axis& axis, const AxisValue& value) {
  return value.is_string() ? value_text(value) : fmt::format("{} = {}", axis.label, value_text(value));
}

std::string quantity_label(const SweepData& data, const std::string& name) {
  if (const Axis* axis = data.sweep.axis(name)) return axis->label;
  for (const Common& common : kCommon)
    if (name == common.name) return common.label;
  return name;
}

Summary summarise(const std::vector<double>& values) {
  Summary summary{values.size(), std::numeric_limits<double>::quiet_NaN(), 0};
  if (values.empty()) return summary;
  const double count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  summary.mean = sum / count;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  if (values.size() > 1) summary.deviation = std::sqrt(squares / (count - 1));
  return summary;
}

}  // namespace hinge::experiment
