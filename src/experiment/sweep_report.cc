#include "experiment/sweep_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "experiment/html_page.h"
#include "experiment/markup.h"
#include "experiment/sweep_figures.h"
#include "experiment/sweep_tables.h"
#include "support/atomic_file.h"

namespace hinge::experiment {
namespace {

using Points = std::vector<const DataPoint*>;

Points points_that(const SweepData& data, bool (*holds)(const DataPoint&)) {
  Points found;
  for (const DataPoint& point : data.points)
    if (holds(point)) found.push_back(&point);
  return found;
}

std::string count_text(size_t count, const std::string& one) { return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s"); }

// A heading and a row for each point; nothing if there are none.
std::string list(const char* title, const Points& points) {
  if (points.empty()) return "";
  Table table{{"point", "step", "why"}, {}};
  if (!points.front()->result) table.header = {"point"};
  for (const DataPoint* point : points) {
    std::vector<std::string>& row = table.rows.emplace_back(std::vector<std::string>{point_text(point->point)});
    if (point->result) row.insert(row.end(), {std::to_string(point->result->steps), point->result->message});
  }
  const bool many = points.size() > 20;  // then folded up
  return fmt::format("<details{}><summary>{}: {}</summary>\n{}</details>\n", many ? "" : " open", title, points.size(), table_html(table));
}

// Values with how many points have them, the most frequent first.
std::string with_counts(const std::map<std::string, size_t>& counts) {
  std::vector<std::pair<size_t, std::string>> sorted;
  for (const auto& [value, count] : counts) sorted.emplace_back(count, value.empty() ? "unknown" : value);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [count, value] : sorted) texts.push_back(fmt::format("{} ({})", value, count_text(count, "point")));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string origin(const SweepData& data) {
  std::map<std::string, size_t> machines, versions;
  double core_hours = 0, flops = 0;
  std::string first, last;
  for (const DataPoint& point : data.points) {
    if (!point.result) continue;
    const PointResult& result = *point.result;
    ++machines[result.machine], ++versions[result.version];
    core_hours += result.core_hours, flops += result.flops;
    if (first.empty() || result.finished < first) first = result.finished;
    last = std::max(last, result.finished);
  }
  Table table{{"", ""}, {{"points", state_text(data)}}};
  for (const Axis& axis : data.sweep.axes) {
    std::vector<std::string> values;
    for (const AxisChoice& choice : axis.choices) values.push_back(value_text(choice.value));
    table.rows.push_back({axis.label + (is_seed(axis) ? " (repetitions)" : ""), fmt::format("{}", fmt::join(values, ", "))});
  }
  if (!machines.empty()) {
    table.rows.push_back({"core-hours of training, in sum", fmt::format("{:.2f}", core_hours)});
    table.rows.push_back({"FLOPs of training, in sum", fmt::format("{:.3g}", flops)});
    table.rows.push_back({"machines", with_counts(machines)});
    table.rows.push_back({"versions of Hinge", with_counts(versions)});
    table.rows.push_back({"finished", first == last ? first : first + " to " + last});
  }
  if (!data.strangers.empty())
    table.rows.push_back({"left out", count_text(data.strangers.size(), "result") + " of points that the sweep does not have"});
  return table_html(table);
}

// A file as it is, with its line ends.
std::string listing(const std::string& path) {
  std::string html = fmt::format("<p class=\"quiet\">{}</p>\n<pre>", escaped(path));
  const std::string text = support::read_file(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    html += escaped(std::string_view(text).substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return html + "</pre>\n";
}

}  // namespace

std::string state_text(const SweepData& data) {
  std::map<std::string, size_t> counts;
  for (const DataPoint& point : data.points) ++counts[point.result ? point.result->state : "missing"];
  std::string text = count_text(data.points.size(), "point") + ": ";
  bool first = true;
  for (const char* state : {kDone, kDiverged, kFailed, "missing"}) {
    if (counts[state] == 0) continue;
    text += fmt::format("{}{} {}", first ? "" : ", ", counts[state], state);
    first = false;
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> figure_files(const SweepData& data) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const FigureConfig& figure : data.sweep.figures)
    if (const LineChart chart = draw(data, figure); has_points(chart)) files.emplace_back(figure.name + ".svg", render(chart));
  return files;
}

std::vector<std::pair<std::string, std::string>> markdown_files(const SweepData& data, const std::vector<std::string>& paths) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& path : paths) files.emplace_back(path, support::read_file(path));
  for (const TableConfig& config : data.sweep.tables) {
    const std::string table = tabulate_markdown(data, config);
    bool placed = false;
    for (auto& [path, text] : files)
      if (std::optional<std::string> changed = replace_table(text, config.name, table, path)) {
        text = std::move(*changed);
        placed = true;
      }
    if (!placed)
      throw std::runtime_error(
          fmt::format("{} has no place for the table '{}' of {}; add the lines '<!-- begin: table {} -->' and '<!-- end: table {} -->'",
                      fmt::join(paths, ", "), config.name, data.sweep.file, config.name, config.name));
  }
  return files;
}

std::string render_html(const SweepData& data) {
  const Sweep& sweep = data.sweep;
  std::string html;
  if (!sweep.text.empty()) html += fmt::format("<p>{}</p>\n", escaped(sweep.text));
  for (const FigureConfig& figure : sweep.figures) {
    const LineChart chart = draw(data, figure);
    html += has_points(chart) ? "<figure>" + render(chart) + "</figure>\n"
                              : fmt::format("<p class=\"quiet\">Figure {}: no run is finished yet.</p>\n", escaped(figure.name));
  }
  for (const TableConfig& config : sweep.tables) {
    const std::string& title = config.title.empty() ? config.name : config.title;
    html += fmt::format("<h2>{}</h2>\n<p class=\"quiet\">{}: mean ± standard deviation (number of runs)</p>\n", escaped(title),
                        escaped(value_title(data, config)));
    html += table_html(tabulate(data, config));
  }
  const std::string lists = list("Missing", points_that(data, [](const DataPoint& point) { return !point.result; })) +
                            list("Failed", points_that(data, [](const DataPoint& point) { return point.failed(); })) +
                            list("Diverged", points_that(data, [](const DataPoint& point) { return point.diverged(); }));
  if (!lists.empty()) html += "<h2>Points without a score</h2>\n" + lists;
  html += "<h2>How it was measured</h2>\n" + origin(data);
  html += fmt::format("<h2>Config</h2>\n<p><code>hinge sweep {0}</code> measures, <code>hinge report {0}</code> draws.</p>\n",
                      escaped(sweep.file));
  html += listing(sweep.file);
  if (!sweep.base.empty()) html += listing(sweep.base);
  return html_page(sweep.title, state_text(data), html);
}

}  // namespace hinge::experiment
