#include "experiment/sweep_figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "experiment/formula.h"
#include "support/config.h"

namespace hinge::experiment {
namespace {

constexpr const char* kStep = "step";  // the x of curves over training

using Points = std::vector<const DataPoint*>;

class Drawing {
 public:
  Drawing(const SweepData& data, const FigureConfig& figure)
      : data_(data), figure_(figure), where_(fmt::format("figure '{}'", figure.name)), points_(points_for(data, named_axes(figure))) {
    x_axis_ = data.sweep.axis(figure.x);
    if (x_axis_ == nullptr && figure.x != kStep) require_quantity(data, figure.x, where_);
    if (figure.x == kStep)
      require_recorded();
    else
      require_quantity(data, figure.y, where_);
    if (!figure.lines.empty()) lines_ = &require_axis(data, figure.lines, where_);
    if (!figure.panels.empty()) panels_ = &require_axis(data, figure.panels, where_);
    for (const auto& condition : figure.where) require_axis(data, condition.first, where_);
    for (const auto& condition : figure.reference) require_axis(data, condition.first, where_);
    if (!figure.top_x.empty()) {
      require_quantity(data, figure.top_x, where_);
      if (!x_is_number()) fail("top_x needs an x that is an axis of numbers");
    }
  }

  LineChart draw() {
    const Points all = drawn_points();
    LineChart chart{.title = figure_.title.empty() ? data_.sweep.title : figure_.title,
                    .subtitle = "",
                    .x_label = figure_.x_label,
                    .y_label = figure_.y_label.empty() ? quantity_label(data_, figure_.y) : figure_.y_label,
                    .log_x = figure_.log_x,
                    .log_y = figure_.log_y,
                    .panels = {},
                    .cross_label = "diverged"};
    if (chart.x_label.empty()) chart.x_label = figure_.x == kStep ? "training step" : quantity_label(data_, figure_.x);
    if (figure_.percent && chart.y_label.find('%') == std::string::npos) chart.y_label += " (%)";
    if (figure_.y_from) chart.y_from = *figure_.y_from * factor();
    if (!figure_.top_x.empty()) chart.top_label = top_label();
    if (x_axis_ != nullptr) {
      for (const size_t place : places_of(*x_axis_, all)) {
        const AxisValue& value = x_axis_->choices[place].value;
        x_places_.push_back(place);
        if (x_is_number())
          chart.x_ticks.push_back(value.get<double>());
        else
          chart.x_names.push_back(value_text(value));
      }
      std::sort(chart.x_ticks.begin(), chart.x_ticks.end());
    }
    if (panels_ == nullptr) {
      chart.panels.push_back(draw_panel(all, references(all, std::nullopt)));
    } else {
      for (const size_t place : places_of(*panels_, all)) {
        chart.panels.push_back(draw_panel(at(*panels_, place, all), references(all, place)));
        chart.panels.back().title = value_label(*panels_, panels_->choices[place].value);
      }
    }
    chart.subtitle = subtitle(all);
    return chart;
  }

 private:
  // The runs behind one mark.
  struct Group {
    double x = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> xs, values;
    bool diverged = false;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw support::ConfigError(fmt::format("{}: {}: {}", data_.sweep.file, where_, what));
  }

  double factor() const { return figure_.percent ? 100 : 1; }

  bool x_is_number() const {
    return x_axis_ != nullptr &&
           std::all_of(x_axis_->choices.begin(), x_axis_->choices.end(), [](const AxisChoice& choice) { return choice.value.is_number(); });
  }

  bool is_reference(const DataPoint& point) const {
    return !figure_.reference.empty() && std::all_of(figure_.reference.begin(), figure_.reference.end(), [&](const auto& condition) {
      return same_value(value_of(point.point, condition.first), condition.second);
    });
  }

  // The points with a place on every axis of the figure, the references aside.
  Points drawn_points() const {
    Points points = select(points_, figure_.where);
    std::erase_if(points, [&](const DataPoint* point) {
      if (is_reference(*point)) return true;
      for (const Axis* axis : {x_axis_, lines_, panels_})
        if (axis != nullptr && !place_of(*axis, point->point)) return true;
      return false;
    });
    return points;
  }

  // The references of a panel. One may lack axes of the points drawn, as softmax has no alpha, but has none that they lack: it would be of
  // another part of the sweep. Without the panels' axis, it is a reference of every panel.
  Points references(const Points& drawn, std::optional<size_t> panel) const {
    std::set<std::string> axes;
    for (const DataPoint* point : drawn)
      for (const auto& coordinate : point->point) axes.insert(coordinate.first);
    PointFilter where = figure_.where;
    std::erase_if(where, [&](const auto& condition) { return !value_of(figure_.reference, condition.first).is_null(); });
    Points points = select(points_, where, true);
    std::erase_if(points, [&](const DataPoint* point) {
      const std::optional<size_t> place = panel ? place_of(*panels_, point->point) : std::nullopt;
      return !is_reference(*point) || (place && place != panel) ||
             std::any_of(point->point.begin(), point->point.end(),
                         [&](const auto& coordinate) { return !axes.contains(coordinate.first); });
    });
    return points;
  }

  static Points at(const Axis& axis, size_t place, const Points& points) {
    Points found;
    for (const DataPoint* point : points)
      if (place_of(axis, point->point) == place) found.push_back(point);
    return found;
  }

  double y_of(const DataPoint& point) const {
    return point.done() ? point.quantity(figure_.y) * factor() : std::numeric_limits<double>::quiet_NaN();
  }

  // On an axis: its number, or its place among the names. Otherwise the quantity itself.
  double x_of(const DataPoint& point) const {
    if (x_axis_ == nullptr) return point.quantity(figure_.x);
    const size_t place = *place_of(*x_axis_, point.point);
    if (x_is_number()) return x_axis_->choices[place].value.get<double>();
    return static_cast<double>(std::find(x_places_.begin(), x_places_.end(), place) - x_places_.begin());
  }

  // Runs with the same value of x where x is an axis. Otherwise those that differ in their seeds only, because what is measured is never
  // the same twice; their x is the mean.
  std::vector<Group> groups(const Points& points) {
    std::map<std::string, Group> by_key;
    for (const DataPoint* point : points) {
      std::string key;
      for (const auto& [name, value] : point->point)
        if (x_axis_ != nullptr ? name == x_axis_->name : !is_seed(*data_.sweep.axis(name))) key += name + "=" + value.dump() + " ";
      Group& group = by_key[key];
      const double x = x_of(*point), y = y_of(*point);
      if (std::isfinite(x)) group.xs.push_back(x);
      if (point->diverged())
        group.diverged = true;
      else if (!std::isfinite(y))
        ++missing_;
      if (std::isfinite(x) && std::isfinite(y)) group.values.push_back(y);
    }
    std::vector<Group> sorted;
    for (auto& [key, group] : by_key) {
      group.x = summarise(group.xs).mean;
      if (std::isfinite(group.x)) sorted.push_back(std::move(group));
    }
    std::sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) { return a.x < b.x; });
    return sorted;
  }

  LineSeries series_over_x(const Points& points) {
    LineSeries series;
    for (const Group& group : groups(points)) {
      const Summary summary = summarise(group.values);
      note(summary.count);
      series.points.emplace_back(group.x, summary.mean);
      series.deviations.push_back(summary.deviation);
      if (group.diverged) series.crosses.push_back(group.x);
    }
    for (const DataPoint* point : points)
      if (const double x = x_of(*point), y = y_of(*point); std::isfinite(x) && std::isfinite(y)) series.samples.emplace_back(x, y);
    return series;
  }

  // A run that diverges counts until then.
  LineSeries series_over_steps(const Points& points) {
    LineSeries series;
    std::map<int64_t, std::vector<double>> by_step;
    size_t runs = 0;
    for (const DataPoint* point : points) {
      const auto* curve = recorded(*point);
      if (point->diverged()) series.crosses.push_back(static_cast<double>(point->result->steps));
      if (curve == nullptr) {
        missing_ += point->diverged() ? 0 : 1;
        continue;
      }
      ++runs;
      for (const auto& [step, value] : *curve)
        if (std::isfinite(value)) by_step[step].push_back(value * factor());
    }
    note(runs);
    for (const auto& [step, values] : by_step) {
      const Summary summary = summarise(values);
      series.points.emplace_back(static_cast<double>(step), summary.mean);
      series.deviations.push_back(summary.deviation);
    }
    return series;
  }

  LineSeries series_of(const Points& points) { return figure_.x == kStep ? series_over_steps(points) : series_over_x(points); }

  const std::vector<std::pair<int64_t, double>>* recorded(const DataPoint& point) const {
    if (!point.done() && !point.diverged()) return nullptr;
    for (const auto& [name, values] : point.result->scores)
      if (name == figure_.y || formula_name(name) == figure_.y) return &values;
    return nullptr;
  }

  void require_recorded() const {
    std::set<std::string> names;
    for (const DataPoint& point : data_.points) {
      if (recorded(point) != nullptr) return;
      if (point.result)
        for (const auto& score : point.result->scores) names.insert(score.first);
    }
    if (!names.empty())
      fail(fmt::format("there is no metric '{}' by step. There are: {}; others can be given under 'record'", figure_.y,
                       fmt::join(names, ", ")));
  }

  LinePanel draw_panel(const Points& points, const Points& reference_points) {
    LinePanel panel;
    if (lines_ == nullptr) {
      panel.series.push_back(series_of(points));
    } else {
      for (const size_t place : places_of(*lines_, points)) {
        panel.series.push_back(series_of(at(*lines_, place, points)));
        panel.series.back().label = value_label(*lines_, lines_->choices[place].value);
        panel.series.back().colour = place;
      }
    }
    if (!figure_.top_x.empty()) panel.top_ticks = top_ticks(points);
    if (!reference_points.empty()) add_reference(panel, reference_points);
    return panel;
  }

  // A line across the panel, or a curve if the references have several x of their own.
  void add_reference(LinePanel& panel, const Points& points) {
    std::vector<std::string> labels;
    for (const auto& [name, value] : figure_.reference) labels.push_back(value_label(*data_.sweep.axis(name), value));
    const std::string label = fmt::format("{}", fmt::join(labels, ", "));
    const bool on_axis =
        x_axis_ != nullptr && places_of(*x_axis_, points).size() > 1 &&
        std::all_of(points.begin(), points.end(), [&](const auto* point) { return place_of(*x_axis_, point->point).has_value(); });
    if (figure_.x == kStep || on_axis) {
      LineSeries series = series_of(points);
      series.label = label;
      series.reference = true;
      panel.series.push_back(std::move(series));
      return;
    }
    std::vector<double> values;
    for (const DataPoint* point : points)
      if (const double y = y_of(*point); std::isfinite(y))
        values.push_back(y);
      else if (!point->diverged())
        ++missing_;
    const Summary summary = summarise(values);
    if (summary.count > 0) panel.references.push_back({label, summary.mean, summary.deviation});
  }

  std::vector<std::pair<double, std::string>> top_ticks(const Points& points) const {
    std::map<double, double> by_x;
    for (const DataPoint* point : points) {
      const double x = x_of(*point), top = point->quantity(figure_.top_x);
      if (!std::isfinite(top)) continue;
      const auto [known, fresh] = by_x.emplace(x, top);
      if (!fresh && std::abs(known->second - top) > 1e-9 * std::abs(top))
        fail(fmt::format("top_x = '{}' is both {:.4g} and {:.4g} at {} = {:.4g}; give each its panel", figure_.top_x, known->second, top,
                         figure_.x, x));
    }
    std::vector<std::pair<double, std::string>> ticks;
    for (const auto& [x, top] : by_x) ticks.emplace_back(x, fmt::format("{:.3g}", top));
    return ticks;
  }

  // With the formula, which is the point of it.
  std::string top_label() const {
    for (const auto& [name, formula] : data_.sweep.derived)
      if (name == figure_.top_x) return name + " = " + formula;
    return quantity_label(data_, figure_.top_x);
  }

  void note(size_t runs) {
    if (runs == 0) return;
    fewest_runs_ = std::min(fewest_runs_, runs);
    most_runs_ = std::max(most_runs_, runs);
  }

  // What lines and bands are, and what is missing.
  std::string subtitle(const Points& points) const {
    std::vector<std::string> spread;
    for (const Axis& axis : data_.sweep.axes) {  // values of a measured axis are no repetitions
      const bool left_over =
          x_axis_ != nullptr || figure_.x == kStep ? &axis != x_axis_ && &axis != lines_ && &axis != panels_ : is_seed(axis);
      if (left_over && places_of(axis, points).size() > 1) spread.push_back(axis.label);
    }
    std::string text;
    if (most_runs_ > 1) {
      const std::string runs =
          fewest_runs_ == most_runs_ ? fmt::format("{}", most_runs_) : fmt::format("{} to {}", fewest_runs_, most_runs_);
      text = fmt::format("Mean ± one standard deviation over {} ({} runs each)", fmt::join(spread, " and "), runs);
    } else if (most_runs_ == 1) {
      text = "One run each";
    }
    if (missing_ > 0) text += fmt::format("{}{} {} missing", text.empty() ? "" : "; ", missing_, missing_ == 1 ? "run is" : "runs are");
    return text;
  }

  static std::vector<std::string> named_axes(const FigureConfig& figure) {
    std::vector<std::string> names = {figure.x, figure.lines, figure.panels};
    for (const auto& condition : figure.where) names.push_back(condition.first);
    for (const auto& condition : figure.reference) names.push_back(condition.first);
    return names;
  }

  const SweepData& data_;
  const FigureConfig& figure_;
  const std::string where_;
  const std::vector<DataPoint>& points_;
  const Axis *x_axis_ = nullptr, *lines_ = nullptr, *panels_ = nullptr;
  std::vector<size_t> x_places_;  // of the x axis' values that are drawn, in its list
  size_t fewest_runs_ = std::numeric_limits<size_t>::max(), most_runs_ = 0, missing_ = 0;
};

}  // namespace

LineChart draw(const SweepData& data, const FigureConfig& figure) { return Drawing(data, figure).draw(); }

bool has_points(const LineChart& chart) {
  for (const LinePanel& panel : chart.panels)
    for (const LineSeries& series : panel.series)
      if (!series.crosses.empty() ||
          std::any_of(series.points.begin(), series.points.end(), [](const auto& point) { return std::isfinite(point.second); }))
        return true;
  return false;
}

}  // namespace hinge::experiment
