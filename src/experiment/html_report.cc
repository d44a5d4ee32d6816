// The page: tables, SVG charts in place, pictures as base64.
#include "experiment/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "experiment/html_page.h"
#include "experiment/markup.h"
#include "experiment/svg_plot.h"

namespace hinge::experiment {
namespace {

constexpr size_t kMostPoints = 200;  // of one curve; more cannot be told apart

// The points of a metric, thinned to equal groups whose means they are.
std::vector<std::pair<double, double>> points_of(const RunSummary& run, const std::string& metric) {
  std::vector<std::pair<double, double>> all, thinned;
  for (const support::MetricRecord& record : run.metrics)
    if (const double value = record.number(metric); std::isfinite(value)) all.emplace_back(static_cast<double>(record.step), value);
  const size_t group = (all.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < all.size(); begin += group) {
    const size_t end = std::min(begin + group, all.size());
    double x = 0, y = 0;
    for (size_t i = begin; i < end; ++i) x += all[i].first, y += all[i].second;
    thinned.emplace_back(x / static_cast<double>(end - begin), y / static_cast<double>(end - begin));
  }
  return thinned;
}

std::string curve(const Report& report, const ReportCurve& wanted) {
  LineChart chart{.title = wanted.title, .subtitle = "", .x_label = "step", .y_label = wanted.y_label, .from_zero = true, .panels = {{}}};
  std::vector<LineSeries>& series = chart.panels[0].series;
  for (size_t i = 0; i < report.runs.size(); ++i) {
    std::vector<std::pair<double, double>> points = points_of(report.runs[i], wanted.metric);
    if (!points.empty()) series.push_back({report.runs[i].name, std::move(points), i});
  }
  return series.empty() ? "" : "<figure>" + render(chart) + "</figure>\n";
}

std::string picture(const ReportPicture& given, int width) {
  if (!given.png.starts_with("\x89PNG\r\n\x1a\n"))
    throw std::invalid_argument(fmt::format("the picture '{}' of a report is not a PNG", given.caption));
  std::string lines;
  for (size_t begin = 0; begin <= given.caption.size();) {
    const size_t end = std::min(given.caption.find('\n', begin), given.caption.size());
    lines += (begin ? "<br>" : "") + escaped(std::string_view(given.caption).substr(begin, end - begin));
    begin = end + 1;
  }
  return fmt::format("<figure><img alt=\"{}\"{} src=\"data:image/png;base64,{}\"><figcaption>{}</figcaption></figure>\n",
                     escaped(given.caption), width > 0 ? fmt::format(" width=\"{}\"", width) : "", base64(given.png), lines);
}

}  // namespace

std::string render_html(const Report& report) {
  Table runs = run_table(report.runs, [&](const RunSummary&) -> const ScoreFormat& { return report.scores; });
  const size_t own_columns = runs.header.size() - differences(report.runs).size();  // the differences get a table of their own
  runs.header.resize(own_columns);
  for (auto& cells : runs.rows) cells.resize(own_columns);
  std::string html = "<h2>Runs</h2>\n" + table_html(runs);
  for (const RunSummary& run : report.runs) {
    if (!run.status.message.empty()) html += fmt::format("<p class=\"quiet\">{}: {}</p>\n", escaped(run.name), escaped(run.status.message));
    for (const std::string& problem : run.problems) html += fmt::format("<p class=\"quiet\">{}</p>\n", escaped(problem));
  }

  std::string curves;
  for (const ReportCurve& wanted : report.curves) curves += curve(report, wanted);
  if (!curves.empty()) html += "<h2>Curves</h2>\n<div class=\"charts\">" + curves + "</div>\n";

  std::vector<std::string> header = {"key"};
  for (const RunSummary& run : report.runs) header.push_back(run.name);
  std::vector<std::vector<std::string>> rows;
  for (const support::ConfigDifference& difference : differences(report.runs)) {
    rows.push_back({difference.key});
    for (const std::string& value : difference.values) rows.back().push_back(value.empty() ? "-" : value);
  }
  if (!rows.empty()) html += "<h2>Where the configs differ</h2>\n" + table_html({header, rows});

  for (const ReportSection& section : report.sections) {
    html += fmt::format("<h2>{}</h2>\n", escaped(section.title));
    if (!section.text.empty()) html += fmt::format("<p>{}</p>\n", escaped(section.text));
    for (const ReportPicture& given : section.pictures) html += picture(given, section.picture_width);
  }
  return html_page(report.title, report.subtitle, html);
}

}  // namespace hinge::experiment
