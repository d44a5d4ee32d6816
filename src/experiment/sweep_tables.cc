#include "experiment/sweep_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

namespace hinge::experiment {
namespace {

// The runs behind one cell.
struct Cell {
  std::vector<double> values;
  size_t diverged = 0, missing = 0;
};

// The sizes of a table's values, zeros aside.
struct Range {
  double smallest = 0, largest = 0;

  void add(double value) {
    const double size = std::abs(value);
    if (size == 0) return;
    smallest = largest > 0 ? std::min(smallest, size) : size;
    largest = std::max(largest, size);
  }
};

// As many decimals as the largest value needs for four digits, the same in all cells; but three digits of each value where the small ones
// would lose theirs.
std::string number_text(double value, const Range& range) {
  const double largest = range.largest;
  if (largest >= 1e6) return fmt::format("{:.3e}", value);
  if (largest > 100 * range.smallest) return std::abs(value) >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  const int decimals = largest > 0 ? 3 - static_cast<int>(std::floor(std::log10(largest))) : 3;
  return fmt::format("{:.{}f}", value, std::clamp(decimals, 0, 9));
}

std::string cell_text(const Cell& cell, bool percent, const Range& range) {
  const auto number = [&](double value) { return percent ? fmt::format("{:.2f}", 100 * value) : number_text(value, range); };
  if (cell.values.empty()) return cell.diverged > 0 ? "diverged" : "missing";
  const Summary summary = summarise(cell.values);
  std::string text = number(summary.mean);
  if (summary.count > 1) text += " ± " + number(summary.deviation);
  text += cell.missing > 0 ? fmt::format(" ({} of {})", summary.count, summary.count + cell.missing + cell.diverged)
                           : fmt::format(" ({})", summary.count);
  if (cell.diverged > 0) text += fmt::format(", {} diverged", cell.diverged);
  return text;
}

}  // namespace

std::string value_title(const SweepData& data, const TableConfig& config) {
  return (config.label.empty() ? quantity_label(data, config.value) : config.label) + (config.percent ? " (%)" : "");
}

Table tabulate(const SweepData& data, const TableConfig& config) {
  const std::string where = fmt::format("table '{}'", config.name);
  std::vector<const Axis*> rows;
  for (const std::string& row : config.rows) rows.push_back(&require_axis(data, row, where));
  const Axis* columns = config.columns.empty() ? nullptr : &require_axis(data, config.columns, where);
  for (const auto& condition : config.where) require_axis(data, condition.first, where);
  require_quantity(data, config.value, where);

  // By their places on the axes; a point without such an axis comes after those with it.
  std::map<std::vector<size_t>, std::map<size_t, Cell>> cells;
  std::map<size_t, bool> used_columns;
  Range range;
  std::vector<std::string> axes = config.rows;
  axes.push_back(config.columns);
  for (const auto& condition : config.where) axes.push_back(condition.first);
  for (const DataPoint* point : select(points_for(data, axes), config.where)) {
    const auto place = [&](const Axis& axis) { return place_of(axis, point->point).value_or(axis.choices.size()); };
    std::vector<size_t> key;
    for (const Axis* axis : rows) key.push_back(place(*axis));
    const size_t column = columns != nullptr ? place(*columns) : 0;
    used_columns[column] = true;
    Cell& cell = cells[key][column];
    const double value = point->done() ? point->quantity(config.value) : std::nan("");
    if (std::isfinite(value)) {
      cell.values.push_back(value);
      range.add(value);
    } else {
      ++(point->diverged() ? cell.diverged : cell.missing);
    }
  }

  Table table;
  for (const Axis* axis : rows) table.header.push_back(axis->label);
  for (const auto& [column, used] : used_columns) {
    if (columns == nullptr)
      table.header.push_back(value_title(data, config));
    else if (column < columns->choices.size())
      table.header.push_back(value_label(*columns, columns->choices[column].value));
    else
      table.header.push_back("no " + columns->label);
  }
  for (const auto& [key, row] : cells) {
    std::vector<std::string>& texts = table.rows.emplace_back();
    for (size_t i = 0; i < rows.size(); ++i)
      texts.push_back(key[i] < rows[i]->choices.size() ? value_text(rows[i]->choices[key[i]].value) : "-");
    for (const auto& [column, used] : used_columns) {
      const auto cell = row.find(column);
      texts.push_back(cell == row.end() ? "" : cell_text(cell->second, config.percent, range));
    }
  }
  return table;
}

std::string tabulate_markdown(const SweepData& data, const TableConfig& config) {
  return table_markdown(tabulate(data, config), config.rows.size());
}

std::optional<std::string> replace_table(const std::string& markdown, const std::string& name, const std::string& table,
                                         const std::string& file) {
  const std::string begin_marker = fmt::format("<!-- begin: table {} -->", name), end_marker = fmt::format("<!-- end: table {} -->", name);
  const size_t begin = markdown.find(begin_marker), end = markdown.find(end_marker);
  if (begin == std::string::npos && end == std::string::npos) return std::nullopt;
  const size_t from = begin == std::string::npos ? begin : begin + begin_marker.size();
  if (begin == std::string::npos || end == std::string::npos || end < from || markdown.find(begin_marker, from) != std::string::npos)
    throw std::runtime_error(fmt::format("{}: there must be one '{}' and after it one '{}'", file, begin_marker, end_marker));
  return markdown.substr(0, from) + "\n\n" + table + "\n" + markdown.substr(end);
}

}  // namespace hinge::experiment
