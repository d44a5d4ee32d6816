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

TEST(LineChart, BreaksAtNanAndRefusesWhatTheAxisCannotShow) {
  LineChart chart{"t", "", "x", "y", true, {{"s", {{1, 1}, {2, std::nan("")}, {4, 3}, {8, 2}}, 0, false}}, {}};
  const std::string svg = render(chart);
  EXPECT_EQ(count(svg, "<circle"), 3u);
  EXPECT_EQ(count(svg, "nan"), 0u);
  const size_t path = svg.find("<path d=\"");
  EXPECT_EQ(count(svg.substr(path, svg.find('"', path + 9) - path), "M"), 2u);
  chart.series[0].points[0].first = 0;
  EXPECT_THROW(render(chart), std::invalid_argument);
  EXPECT_THROW(render(LineChart{}), std::invalid_argument);
}

TEST(LineChart, LongCurvesAreLinesWithoutPoints) {
  LineChart chart{"t", "", "x", "y", false, {{"s", {}, 0, false}}, {}};
  for (int i = 0; i < 100; ++i) chart.series[0].points.emplace_back(i, i);
  EXPECT_EQ(count(render(chart), "<circle"), 0u);
  EXPECT_EQ(count(render(chart), "L"), 99u);
}

}  // namespace
}  // namespace hinge::experiment
