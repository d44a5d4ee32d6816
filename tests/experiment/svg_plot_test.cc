// Charts are whole SVG documents that hold what was plotted, and files appear whole or not at all.
#include "experiment/svg_plot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "experiment/atomic_file.h"

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

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "hinge-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string content(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  std::filesystem::path folder_;
};

TEST_F(AtomicFileTest, ReplacesOnCommitOnly) {
  std::ofstream(folder_ / "result") << "old";
  {
    AtomicFile abandoned((folder_ / "result").string());
    EXPECT_EQ(content("result"), "old");
  }
  EXPECT_EQ(files(), 1u);
  AtomicFile file((folder_ / "result").string());
  file.commit("new");
  EXPECT_EQ(content("result"), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, SaysWhyItCannot) {
  try {
    AtomicFile file((folder_ / "missing" / "result").string());
    FAIL() << "a folder that is not there was accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("missing/result"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
  EXPECT_THROW(AtomicFile(folder_.string()), std::runtime_error);
}

}  // namespace
}  // namespace hinge::experiment
