// Reads sweeps: keys, axes, and the points that grids and single points come to.
#include "experiment/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "support/atomic_file.h"
#include "support/nearest.h"
#include "support/toml.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using support::ConfigError;

// The keys of one table. Those that are asked for are the ones there are; end() refuses the rest.
class Keys {
 public:
  // `name`: "axes.alpha"; empty for the file itself.
  Keys(const toml::table& table, const std::string& file, std::string name) : table_(table), file_(file), name_(std::move(name)) {}

  [[noreturn]] void fail(const toml::node& node, const std::string& problem) const {
    throw ConfigError(fmt::format("{}:{}: {}", file_, node.source().begin.line, problem));
  }
  [[noreturn]] void fail(const std::string& problem) const { fail(table_, problem); }

  std::string full(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }
  const std::string& file() const { return file_; }

  // Null if it is not there.
  const toml::node* find(const std::string& key) {
    known_.push_back(key);
    return table_.get(key);
  }
  void require(const std::string& key) {
    if (table_.get(key) == nullptr) fail(name_.empty() ? fmt::format("'{}' is missing", key) : fmt::format("{} has no '{}'", name_, key));
  }

  std::string text(const std::string& key, const std::string& otherwise = "") {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_string();
    if (value == nullptr || value->get().empty()) fail(*node, fmt::format("'{}' must be a text", full(key)));
    return value->get();
  }
  std::string required_text(const std::string& key) { return require(key), text(key); }
  bool flag(const std::string& key) {
    const toml::node* node = find(key);
    if (node == nullptr) return false;
    const auto* value = node->as_boolean();
    if (value == nullptr) fail(*node, fmt::format("'{}' must be true or false", full(key)));
    return value->get();
  }
  std::optional<double> number(const std::string& key) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    if (!node->is_number()) fail(*node, fmt::format("'{}' must be a number", full(key)));
    return node->value<double>();
  }
  std::vector<std::string> texts(const std::string& key) {
    const toml::node* node = find(key);
    std::vector<std::string> all;
    if (node == nullptr) return all;
    const toml::array* array = node->as_array();
    if (array == nullptr) fail(*node, fmt::format("'{}' must be a list of texts", full(key)));
    for (const toml::node& item : *array) {
      if (!item.is_string()) fail(item, fmt::format("'{}' must be a list of texts", full(key)));
      all.push_back(item.as_string()->get());
    }
    return all;
  }
  // Null if it is not there.
  const toml::table* table(const std::string& key) {
    const toml::node* node = find(key);
    if (node != nullptr && !node->is_table()) fail(*node, fmt::format("'{}' must be a table", full(key)));
    return node == nullptr ? nullptr : node->as_table();
  }
  // The tables of [[key]].
  std::vector<const toml::table*> tables(const std::string& key) {
    std::vector<const toml::table*> all;
    const toml::node* node = find(key);
    if (node == nullptr) return all;
    const toml::array* array = node->as_array();
    if (array == nullptr) fail(*node, fmt::format("'{0}' stands in double brackets: [[{0}]]", full(key)));
    for (const toml::node& item : *array) {
      if (!item.is_table()) fail(item, fmt::format("'{0}' stands in double brackets: [[{0}]]", full(key)));
      all.push_back(item.as_table());
    }
    return all;
  }

  void end() const {
    for (const auto& [key, node] : support::entries_of(table_)) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::optional<std::string> near = support::nearest(key, known_);
      fail(*node,
           fmt::format("unknown key '{}'{}", full(key),
                       near ? fmt::format("; did you mean '{}'?", full(*near)) : fmt::format("; there are {}", fmt::join(known_, ", "))));
    }
  }

 private:
  const toml::table& table_;
  const std::string& file_;
  std::string name_;
  std::vector<std::string> known_;
};

// A number, a text, true or false.
std::optional<AxisValue> scalar_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_floating_point(); value != nullptr && std::isfinite(value->get())) return value->get();
  return std::nullopt;
}

AxisValue require_scalar(const Keys& keys, const toml::node& node, const std::string& key) {
  const std::optional<AxisValue> value = scalar_of(node);
  if (!value) keys.fail(node, fmt::format("a value of '{}' must be a number, a text, true or false", keys.full(key)));
  return *value;
}

// "model.patch=7": JSON of such values is TOML, too.
std::string change_of(const std::string& key, const AxisValue& value) { return key + "=" + value.dump(); }

// The changes in a table `set`, whose keys may be quoted, "model.patch" = 7, or not.
void add_changes(const Keys& keys, const toml::table& table, const std::string& prefix, std::vector<std::string>& changes) {
  for (const auto& [name, node] : support::entries_of(table)) {
    const std::string key = prefix + name;
    if (const toml::table* inner = node->as_table()) {
      add_changes(keys, *inner, key + ".", changes);
      continue;
    }
    json value;
    if (const toml::array* array = node->as_array()) {
      value = json::array();
      for (const toml::node& item : *array) value.push_back(require_scalar(keys, item, key));
    } else {
      value = require_scalar(keys, *node, key);
    }
    changes.push_back(change_of(key, value));
  }
}

std::vector<std::string> read_changes(Keys& keys) {
  std::vector<std::string> changes;
  if (const toml::table* table = keys.table("set")) add_changes(keys, *table, "", changes);
  return changes;
}

std::string values_text(const Axis& axis) {
  std::vector<std::string> texts;
  for (const AxisChoice& choice : axis.choices) texts.push_back(value_text(choice.value));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// The list `values` of an axis, which ends its keys.
const toml::array& require_values(Keys& keys) {
  keys.require("values");
  const toml::node* values = keys.find("values");
  keys.end();
  const toml::array* array = values->as_array();
  if (array == nullptr || array->empty()) keys.fail(*values, fmt::format("'{}' must be a list of at least one value", keys.full("values")));
  return *array;
}

const AxisChoice* find_choice(const Axis& axis, const AxisValue& value) {
  const auto found =
      std::find_if(axis.choices.begin(), axis.choices.end(), [&](const AxisChoice& choice) { return same_value(choice.value, value); });
  return found == axis.choices.end() ? nullptr : &*found;
}

void add_choice(const Keys& keys, const toml::node& item, Axis& axis, AxisChoice choice) {
  if (find_choice(axis, choice.value) != nullptr)
    keys.fail(item, fmt::format("axis '{}' has the value {} twice", axis.name, value_text(choice.value)));
  axis.choices.push_back(std::move(choice));
}

Axis read_axis(const std::string& name, const toml::table& table, const std::string& file) {
  Keys keys(table, file, "axes." + name);
  Axis axis{name, keys.text("label", name), {}};
  const std::string key = keys.text("key");
  for (const toml::node& item : require_values(keys)) {
    AxisChoice choice;
    if (const toml::table* inner = item.as_table()) {
      Keys one(*inner, file, keys.full("values"));
      one.require("value");
      choice.value = require_scalar(one, *one.find("value"), "value");
      if (!key.empty()) choice.changes.push_back(change_of(key, choice.value));
      for (const std::string& change : read_changes(one)) choice.changes.push_back(change);
      one.end();
    } else {
      choice.value = require_scalar(keys, item, "values");
      if (key.empty())
        keys.fail(item,
                  fmt::format("axis '{}' needs a 'key' that its values are for, or values like {{ value = 16, set = {{ ... }} }}", name));
      choice.changes.push_back(change_of(key, choice.value));
    }
    add_choice(keys, item, axis, std::move(choice));
  }
  return axis;
}

// An axis of measures sets nothing: its values are for names.
Axis read_measured(const std::string& name, const toml::table& table, const std::string& file) {
  Keys keys(table, file, "measured." + name);
  Axis axis{name, keys.text("label", name), {}};
  for (const toml::node& item : require_values(keys)) add_choice(keys, item, axis, {require_scalar(keys, item, "values"), {}});
  return axis;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file), root_(support::parse_toml(support::read_file(file), file)) {}

  Sweep read() {
    Keys keys(root_, file_, "");
    const fs::path path(file_);
    sweep_.file = file_;
    sweep_.name = path.stem().string();
    sweep_.title = keys.required_text("title");
    sweep_.text = keys.text("text");
    sweep_.base = beside(keys.required_text("base"));
    if (const std::string results = keys.text("results"); !results.empty()) sweep_.results = beside(results);
    for (const std::string& file : keys.texts("reuse")) sweep_.reuse.push_back(beside(file));
    sweep_.record = keys.texts("record");
    if (const toml::table* assume = keys.table("assume"))
      for (const auto& [name, node] : support::entries_of(*assume)) {
        const std::optional<double> number = node->value<double>();
        if (!number || !(*number > 0)) keys.fail(*node, fmt::format("'assume.{}' must be a number above 0", name));
        sweep_.assume[name] = *number;
      }
    common_ = read_changes(keys);
    if (const toml::table* axes = keys.table("axes"))
      for (const auto& [name, node] : support::entries_of(*axes)) {
        if (!node->is_table()) keys.fail(*node, fmt::format("'axes.{0}' must be a table: [axes.{0}]", name));
        if (reserved(name)) keys.fail(*node, fmt::format("an axis cannot be called '{}'", name));
        sweep_.axes.push_back(read_axis(name, *node->as_table(), file_));
      }
    if (const toml::table* measured = keys.table("measured"))
      for (const auto& [name, node] : support::entries_of(*measured)) {
        if (!node->is_table()) keys.fail(*node, fmt::format("'measured.{0}' must be a table: [measured.{0}]", name));
        if (reserved(name) || sweep_.axis(name) != nullptr) keys.fail(*node, fmt::format("a measured axis cannot be called '{}'", name));
        sweep_.measured.push_back(read_measured(name, *node->as_table(), file_));
      }
    for (const toml::table* table : keys.tables("grid")) add_grid(*table);
    for (const toml::table* table : keys.tables("point")) add_single(*table);
    sweep_.measures = read_pairs(keys, "measure", "a command of hinge");
    sweep_.derived = read_pairs(keys, "derived", "a formula");
    for (const toml::table* table : keys.tables("figure")) sweep_.figures.push_back(read_figure(*table));
    for (const toml::table* table : keys.tables("table")) sweep_.tables.push_back(read_table(*table));
    keys.end();
    if (sweep_.points.empty()) keys.fail("there is no point: add a [[grid]] or a [[point]]");
    return std::move(sweep_);
  }

 private:
  std::string beside(const std::string& path) const { return (fs::path(file_).parent_path() / path).lexically_normal().string(); }

  static bool reserved(const std::string& name) { return name == "axes" || name == "set" || name == "step"; }

  // An axis by its name, or an error at `node`.
  const Axis& require_axis(const Keys& keys, const toml::node& node, const std::string& name) const {
    if (const Axis* axis = sweep_.axis(name)) return *axis;
    std::vector<std::string> names;
    for (const std::vector<Axis>* list : {&sweep_.axes, &sweep_.measured})
      for (const Axis& axis : *list) names.push_back(axis.name);
    const std::optional<std::string> near = support::nearest(name, names);
    keys.fail(node, fmt::format("there is no axis '{}'{}", name,
                                near            ? fmt::format("; did you mean '{}'?", *near)
                                : names.empty() ? ": the sweep has none"
                                                : fmt::format("; there are {}", fmt::join(names, ", "))));
  }
  const AxisChoice& require_choice(const Keys& keys, const toml::node& node, const Axis& axis) const {
    const AxisValue value = require_scalar(keys, node, axis.name);
    if (const AxisChoice* choice = find_choice(axis, value)) return *choice;
    keys.fail(node, fmt::format("axis '{}' has no value {}; it has {}", axis.name, value_text(value), values_text(axis)));
  }

  // Every combination of the values of the axes that a grid names; the last of them varies fastest.
  void add_grid(const toml::table& table) {
    Keys keys(table, file_, "grid");
    keys.require("axes");
    const std::vector<std::string> names = keys.texts("axes");
    const toml::node& list = *table.get("axes");
    if (names.empty()) keys.fail(list, "'grid.axes' names no axis; a single point is a [[point]]");
    const std::vector<std::string> further = read_changes(keys);
    std::vector<const Axis*> axes;
    std::vector<std::vector<const AxisChoice*>> choices;
    for (const std::string& name : names) {
      axes.push_back(&require_axis(keys, list, name));
      if (sweep_.is_measured(name))
        keys.fail(list, fmt::format("'grid.axes' names '{}', along which runs are measured, not trained", name));
      if (std::count(names.begin(), names.end(), name) > 1) keys.fail(list, fmt::format("'grid.axes' names '{}' twice", name));
      choices.emplace_back();
      if (const toml::node* narrowed = keys.find(name)) {
        const toml::array* values = narrowed->as_array();
        if (values == nullptr)
          choices.back().push_back(&require_choice(keys, *narrowed, *axes.back()));
        else
          for (const toml::node& value : *values) choices.back().push_back(&require_choice(keys, value, *axes.back()));
        if (choices.back().empty()) keys.fail(*narrowed, fmt::format("'grid.{}' has no value", name));
      } else {
        for (const AxisChoice& choice : axes.back()->choices) choices.back().push_back(&choice);
      }
    }
    keys.end();
    std::vector<size_t> at(axes.size(), 0);
    for (bool more = true; more;) {
      std::vector<std::pair<const Axis*, const AxisChoice*>> chosen;
      for (size_t i = 0; i < axes.size(); ++i) chosen.emplace_back(axes[i], choices[i][at[i]]);
      add_point(keys, std::move(chosen), further);
      more = false;
      for (size_t i = axes.size(); i-- > 0 && !more;) more = ++at[i] < choices[i].size() || (at[i] = 0, false);
    }
  }

  void add_single(const toml::table& table) {
    Keys keys(table, file_, "point");
    const std::vector<std::string> further = read_changes(keys);
    std::vector<std::pair<const Axis*, const AxisChoice*>> chosen;
    for (const Axis& axis : sweep_.axes)
      if (const toml::node* value = keys.find(axis.name)) chosen.emplace_back(&axis, &require_choice(keys, *value, axis));
    keys.end();
    if (chosen.empty()) keys.fail("a point needs the value of at least one axis");
    add_point(keys, std::move(chosen), further);
  }

  // Applied in this order: the changes of all points, those of the axes in their order, those of the grid or the point.
  void add_point(const Keys& keys, std::vector<std::pair<const Axis*, const AxisChoice*>> chosen, const std::vector<std::string>& further) {
    std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.first < b.first; });  // as in sweep_.axes
    SweepPoint added{{}, common_};
    for (const auto& [axis, choice] : chosen) {
      added.point.emplace_back(axis->name, choice->value);
      added.changes.insert(added.changes.end(), choice->changes.begin(), choice->changes.end());
    }
    added.changes.insert(added.changes.end(), further.begin(), further.end());
    for (const SweepPoint& other : sweep_.points) {
      if (!same_point(other.point, added.point)) continue;
      if (other.changes != added.changes)
        keys.fail(fmt::format("the point {} is there twice with different changes; an axis must tell them apart", point_text(added.point)));
      return;
    }
    sweep_.points.push_back(std::move(added));
  }

  std::vector<std::pair<std::string, std::string>> read_pairs(Keys& keys, const std::string& key, const char* what) const {
    std::vector<std::pair<std::string, std::string>> pairs;
    const toml::table* table = keys.table(key);
    if (table == nullptr) return pairs;
    for (const auto& [name, node] : support::entries_of(*table)) {
      if (!node->is_string() || node->as_string()->get().find_first_not_of(" \t\n") == std::string::npos)
        keys.fail(*node, fmt::format("'{}.{}' must be {}, a text", key, name, what));
      pairs.emplace_back(name, node->as_string()->get());
    }
    return pairs;
  }

  std::string read_axis_name(Keys& keys, const std::string& key) const {
    const std::string name = keys.text(key);
    if (const toml::node* node = keys.find(key)) require_axis(keys, *node, name);
    return name;
  }
  PointFilter read_filter(Keys& keys) const {
    PointFilter filter;
    const toml::table* table = keys.table("where");
    if (table == nullptr) return filter;
    for (const auto& [name, node] : support::entries_of(*table)) {
      const Axis& axis = require_axis(keys, *node, name);
      filter.emplace_back(name, std::vector<AxisValue>());
      if (const toml::array* values = node->as_array())
        for (const toml::node& value : *values) filter.back().second.push_back(require_choice(keys, value, axis).value);
      else
        filter.back().second.push_back(require_choice(keys, *node, axis).value);
    }
    return filter;
  }
  Point read_reference(Keys& keys) const {
    Point point;
    const toml::table* table = keys.table("reference");
    if (table == nullptr) return point;
    for (const auto& [name, node] : support::entries_of(*table))
      point.emplace_back(name, require_choice(keys, *node, require_axis(keys, *node, name)).value);
    return point;
  }

  FigureConfig read_figure(const toml::table& table) {
    Keys keys(table, file_, "figure");
    FigureConfig figure;
    figure.name = unique_name(keys, figure_names_);
    figure.title = keys.text("title", sweep_.title);
    figure.x = keys.required_text("x"), figure.y = keys.required_text("y");
    figure.lines = read_axis_name(keys, "lines"), figure.panels = read_axis_name(keys, "panels");
    figure.x_label = keys.text("x_label"), figure.y_label = keys.text("y_label");
    figure.top_x = keys.text("top_x");
    figure.percent = keys.flag("percent"), figure.log_x = keys.flag("log_x"), figure.log_y = keys.flag("log_y");
    figure.y_from = keys.number("y_from");
    if (figure.log_y && figure.y_from) keys.fail("'figure.y_from' does not go with log_y");
    figure.where = read_filter(keys);
    figure.reference = read_reference(keys);
    keys.end();
    return figure;
  }

  TableConfig read_table(const toml::table& table) {
    Keys keys(table, file_, "table");
    TableConfig config;
    config.name = unique_name(keys, table_names_);
    config.title = keys.text("title");
    keys.require("rows");
    config.rows = keys.texts("rows");
    for (const std::string& row : config.rows) require_axis(keys, *table.get("rows"), row);
    config.columns = read_axis_name(keys, "columns");
    config.value = keys.required_text("value"), config.label = keys.text("label");
    config.percent = keys.flag("percent");
    config.where = read_filter(keys);
    keys.end();
    return config;
  }

  // It becomes a part of a file's name.
  static std::string unique_name(Keys& keys, std::set<std::string>& names) {
    const std::string name = keys.required_text("name");
    const toml::node& node = *keys.find("name");
    if (name.find('/') != std::string::npos) keys.fail(node, fmt::format("'{}' cannot contain a slash", keys.full("name")));
    if (!names.insert(name).second) keys.fail(node, fmt::format("the name '{}' is there twice", name));
    return name;
  }

  const std::string file_;
  const toml::table root_;
  Sweep sweep_;
  std::vector<std::string> common_;
  std::set<std::string> figure_names_, table_names_;
};

}  // namespace

const Axis* Sweep::axis(const std::string& axis_name) const {
  for (const std::vector<Axis>* list : {&axes, &measured})
    for (const Axis& one : *list)
      if (one.name == axis_name) return &one;
  return nullptr;
}

bool Sweep::is_measured(const std::string& axis_name) const {
  return std::any_of(measured.begin(), measured.end(), [&](const Axis& one) { return one.name == axis_name; });
}

Sweep read_sweep(const std::string& file) { return Reader(file).read(); }

std::string value_text(const AxisValue& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

bool same_value(const AxisValue& left, const AxisValue& right) { return left == right; }

bool same_point(const Point& left, const Point& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first && same_value(a.second, b.second); });
}

const AxisValue& value_of(const Point& point, const std::string& axis) {
  static const AxisValue kNone;
  for (const auto& [name, value] : point)
    if (name == axis) return value;
  return kNone;
}

std::string point_text(const Point& point) {
  std::vector<std::string> parts;
  for (const auto& [axis, value] : point) parts.push_back(axis + "=" + value_text(value));
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace hinge::experiment
