// Charts are whole SVG documents that hold what was plotted.
#include "experiment/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace hinge::experiment {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(NiceTicks, AreRoundAndCoverTheRange) {
  EXPECT_EQ(nice_ticks(0, 100), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(nice_ticks(0, 0.9, 4).back(), 1.0);
  for (const double high : {0.003, 1.0, 7.3, 96.0, 188.0, 12345.0}) {
    const std::vector<double> ticks = nice_ticks(0, high);
    EXPECT_EQ(ticks.front(), 0);
    EXPECT_GE(ticks.back(), high * (1 - 1e-9));
    EXPECT_GE(ticks.size(), 4u);
    EXPECT_LE(ticks.size(), 8u);
  }
  EXPECT_GE(nice_ticks(3, 3).size(), 2u);
}

TEST(BarChart, HasABarForEachNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const BarChart chart{"A & B <c>", "sub", "x", "y", {"one", "two"}, {{"s", {1, 2}, 0, false}, {"t", {3, nan}, 0, true}}, {{"line", 2.5}}};
  const std::string svg = render(chart);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("A &amp; B &lt;c&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("<c>"), std::string::npos);
  EXPECT_EQ(count(svg, "<title>s, "), 2u);
  EXPECT_EQ(count(svg, "<title>t, "), 1u);
  EXPECT_EQ(count(svg, "nan"), 0u);
  EXPECT_EQ(count(svg, "stroke-dasharray=\"7 4\""), 1u);
}

TEST(BarChart, RefusesUnevenOrEmptyData) {
  EXPECT_THROW(render(BarChart{"", "", "", "", {"one"}, {{"s", {1, 2}, 0, false}}, {}}), std::invalid_argument);
  EXPECT_THROW(render(BarChart{}), std::invalid_argument);
}

LineChart one_panel(std::vector<LineSeries> series) {
  LineChart chart{.title = "t", .subtitle = "", .x_label = "x", .y_label = "y", .panels = {{}}};
  chart.panels[0].series = std::move(series);
  return chart;
}

// The values of an attribute, one for each match of the element.
std::vector<double> numbers(const std::string& svg, const std::string& element, const std::string& attribute) {
  std::vector<double> found;
  for (size_t at = svg.find("<" + element); at != std::string::npos; at = svg.find("<" + element, at + 1)) {
    const size_t value = svg.find(" " + attribute + "=\"", at) + attribute.size() + 3;
    found.push_back(std::stod(svg.substr(value)));
  }
  return found;
}

TEST(LineChart, BreaksAtNanAndRefusesWhatTheAxisCannotShow) {
  LineChart chart = one_panel({{"s", {{1, 1}, {2, std::nan("")}, {4, 3}, {8, 2}}}});
  chart.log_x = true;
  const std::string svg = render(chart);
  EXPECT_EQ(count(svg, "<circle"), 3u);
  EXPECT_EQ(count(svg, "nan"), 0u);
  const size_t path = svg.find("<path d=\"");
  EXPECT_EQ(count(svg.substr(path, svg.find('"', path + 9) - path), "M"), 2u);
  chart.panels[0].series[0].points[0].first = 0;
  EXPECT_THROW(render(chart), std::invalid_argument);
  EXPECT_THROW(render(LineChart{}), std::invalid_argument);
  EXPECT_THROW(render(one_panel({{.label = "s", .points = {{1, 1}, {2, 2}}, .deviations = {1}}})), std::invalid_argument);
}

TEST(LineChart, LongCurvesAreLinesWithoutPoints) {
  LineChart chart = one_panel({{"s", {}}});
  for (int i = 0; i < 100; ++i) chart.panels[0].series[0].points.emplace_back(i, i);
  EXPECT_EQ(count(render(chart), "<circle"), 0u);
  EXPECT_EQ(count(render(chart), "L"), 99u);
}

TEST(LineChart, BandsAreAroundTheLineAndEndWithIt) {
  const double nan = std::nan("");
  const std::string svg =
      render(one_panel({{.label = "s", .points = {{0, 1}, {1, 2}, {2, nan}, {3, 2}, {4, 1}}, .deviations = {1, 1, 0, 0, 0}}}));
  EXPECT_EQ(count(svg, "fill-opacity=\"0.14\""), 1u) << "no band where nothing deviates";
  EXPECT_EQ(count(svg, "1 ± 1</title>"), 1u);
  EXPECT_EQ(count(svg, "±"), 2u);
}

TEST(LineChart, PanelsShareAxesAndLegend) {
  LineChart chart = one_panel({{"relu", {{0, 10}, {1, 20}}, 0}});
  chart.panels[0].title = "L = 16";
  chart.panels[0].references = {{"softmax", 15, 1}};
  chart.panels.push_back({.title = "L = 49", .series = {{"relu", {{0, 30}, {1, 40}}, 0}}, .references = {{"softmax", 35, 1}}});
  chart.panels.push_back({.title = "L = 196", .series = {{"gelu", {{0, 10}, {1, 20}}, 1}}});
  chart.panels.push_back({.title = "L = 784", .series = {{"gelu", {{0, 10}, {1, 20}}, 1}}});
  const std::string svg = render(chart);
  for (const char* once : {">relu</text>", ">gelu</text>", ">softmax</text>", ">L = 16</text>", ">L = 784</text>"})
    EXPECT_EQ(count(svg, once), 1u) << once;
  EXPECT_EQ(count(svg, ">x</text>"), 4u);
  EXPECT_EQ(count(svg, ">y</text>"), 2u) << "two rows of two";
  EXPECT_EQ(count(svg, ">30</text>"), 2u) << "the y axis is drawn once per row";
  // relu's points at 10 in the first panel, and gelu's at 10 in the third, below it: the same height above the bottom of their plots.
  const std::vector<double> x = numbers(svg, "circle", "cx"), y = numbers(svg, "circle", "cy");
  ASSERT_EQ(y.size(), 8u);
  EXPECT_NEAR(y[0] - y[1], y[4] - y[5], 0.11);
  EXPECT_GT(y[0], y[2]) << "10 is lower than 30 beside it";
  EXPECT_GT(x[2], x[1]);
  EXPECT_NEAR(x[0], x[4], 0.01);
}

TEST(LineChart, CrossesStandAtTheirXBelowThePlotAndInTheLegend) {
  LineChart chart =
      one_panel({{.label = "a", .points = {{0, 1}, {1, 2}}, .crosses = {1}}, {.label = "b", .points = {{0, 1}}, .crosses = {1}}});
  chart.cross_label = "diverged <";
  const std::string svg = render(chart);
  EXPECT_EQ(count(svg, "l7 7m0 -7l-7 7"), 3u) << "two, and one in the legend";
  EXPECT_EQ(count(svg, ">diverged &lt;</text>"), 1u);
  EXPECT_EQ(count(svg, "a: diverged &lt; at 1<"), 1u);
  chart.panels[0].series[0].crosses.clear();
  chart.panels[0].series[1].crosses.clear();
  EXPECT_EQ(count(render(chart), "diverged"), 0u);
}

TEST(LineChart, WhatIsBelowTheAxisBecomesATriangle) {
  LineChart chart = one_panel({{"a", {{0, 10}, {1, 80}, {2, 90}}}});
  EXPECT_EQ(count(render(chart), "h8l-4 7z"), 0u);
  chart.y_from = 70;
  const std::string svg = render(chart);
  EXPECT_EQ(count(svg, "h8l-4 7z"), 2u) << "one, and one in the legend";
  EXPECT_EQ(count(svg, ">below 70</text>"), 1u);
  EXPECT_EQ(count(svg, ">20</text>"), 0u);
}

TEST(LineChart, NamesOnTheXAxis) {
  LineChart chart = one_panel({{.label = "a", .points = {{0, 1}, {1, 2}}, .deviations = {0.5, 0.5}}, {.label = "b", .points = {{0, 1}}}});
  chart.x_names = {"sparsemax", "<relu>"};
  const std::string svg = render(chart);
  EXPECT_EQ(count(svg, ">sparsemax</text>"), 1u);
  EXPECT_EQ(count(svg, ">&lt;relu&gt;</text>"), 1u);
  const std::vector<double> x = numbers(svg, "circle", "cx");
  EXPECT_LT(x[0], x[2]) << "side by side";
  chart.x_names.pop_back();
  EXPECT_THROW(render(chart), std::invalid_argument);
}

TEST(LineChart, ALogarithmicYHasEqualStepsForEqualRatios) {
  LineChart chart = one_panel({{.label = "s", .points = {{1, 0.1}, {2, 1}, {3, 10}, {4, std::nan("")}}, .deviations = {0.2, 0, 0, 0}}});
  chart.log_y = true;
  const std::string svg = render(chart);
  const std::vector<double> y = numbers(svg, "circle", "cy");
  ASSERT_EQ(y.size(), 3u);
  EXPECT_NEAR(y[0] - y[1], y[1] - y[2], 0.2);
  EXPECT_GT(y[0] - y[1], 20);
  EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0u) << "the band is cut off at the bottom";
  chart.panels[0].series[0].points[0].second = 0;
  EXPECT_THROW(render(chart), std::invalid_argument);
}

TEST(LineChart, TopAxisAndLargeNumbers) {
  LineChart chart = one_panel({{"a", {{1e15, 1}, {3e15, 2}}}});
  chart.panels[0].top_ticks = {{1e15, "49"}, {3e15, "0.25"}};
  chart.top_label = "gain";
  chart.log_x = true;
  const std::string svg = render(chart);
  for (const char* part : {">10¹⁵</text>", ">2×10¹⁵</text>", ">49</text>", ">0.25</text>", ">gain</text>"})
    EXPECT_EQ(count(svg, part), 1u) << part;
}

TEST(LogTicks, AreRoundAndInside) {
  EXPECT_EQ(log_ticks(1, 100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(log_ticks(1, 1e5).size(), 6u);
  EXPECT_EQ(log_ticks(64, 1024), (std::vector<double>{100, 200, 500, 1000}));
  EXPECT_GE(log_ticks(6, 9).size(), 2u);
  EXPECT_EQ(log_ticks(7.3, 7.3).size(), 1u);
}

}  // namespace
}  // namespace hinge::experiment
