// The page: a style sheet for light and dark, tables, SVG charts in place, pictures as base64.
#include "experiment/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "experiment/markup.h"
#include "experiment/svg_plot.h"

namespace hinge::experiment {
namespace {

constexpr size_t kMostPoints = 200;  // of one curve; more cannot be told apart

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1b1b; --quiet: #666; --rule: #ddd; --stripe: #f6f6f6; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --text: #e6e6e6; --quiet: #9a9a9a; --rule: #363a40; --stripe: #1e2125; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--page); color: var(--text);
       font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; } .quiet { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; } th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap; }
tbody tr:nth-child(odd) { background: var(--stripe); } td { font-variant-numeric: tabular-nums; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; vertical-align: top; } figcaption { color: var(--quiet); max-width: 30rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; } .charts figure { margin: 0; }
svg, img { max-width: 100%; height: auto; border-radius: 4px; }
)";

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= count ? kLetters[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string row(const std::vector<std::string>& cells, const char* tag) {
  std::string html = "<tr>";
  for (const std::string& cell : cells) html += fmt::format("<{0}>{1}</{0}>", tag, escaped(cell));
  return html + "</tr>\n";
}

std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"wide\"><table><thead>" + row(header, "th") + "</thead><tbody>\n";
  for (const auto& cells : rows) html += row(cells, "td");
  return html + "</tbody></table></div>\n";
}

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
  LineChart chart{wanted.title, "", "step", wanted.y_label, false, {}, {}};
  for (size_t i = 0; i < report.runs.size(); ++i) {
    std::vector<std::pair<double, double>> points = points_of(report.runs[i], wanted.metric);
    if (!points.empty()) chart.series.push_back({report.runs[i].name, std::move(points), i, false});
  }
  return chart.series.empty() ? "" : "<figure>" + render(chart) + "</figure>\n";
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
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{2}</style>\n</head>\n<body>\n"
      "<h1>{0}</h1>\n<p class=\"quiet\">{1}</p>\n",
      escaped(report.title), escaped(report.subtitle), kStyle);

  RunTable runs = run_table(report.runs, [&](const RunSummary&) -> const ScoreFormat& { return report.scores; });
  const size_t own_columns = runs.header.size() - differences(report.runs).size();  // the differences get a table of their own
  runs.header.resize(own_columns);
  for (auto& cells : runs.rows) cells.resize(own_columns);
  html += "<h2>Runs</h2>\n" + table(runs.header, runs.rows);
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
  if (!rows.empty()) html += "<h2>Where the configs differ</h2>\n" + table(header, rows);

  for (const ReportSection& section : report.sections) {
    html += fmt::format("<h2>{}</h2>\n", escaped(section.title));
    if (!section.text.empty()) html += fmt::format("<p>{}</p>\n", escaped(section.text));
    for (const ReportPicture& given : section.pictures) html += picture(given, section.picture_width);
  }
  return html + "</body>\n</html>\n";
}

}  // namespace hinge::experiment
