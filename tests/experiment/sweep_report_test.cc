// Tables of a sweep, their places in Markdown files, and its page.
#include "experiment/sweep_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../support/errors.h"
#include "experiment/sweep_tables.h"
#include "sweep_results_file.h"

namespace hinge::experiment {
namespace {

using support::error_of;
using support::mentions;

constexpr const char* kTable = R"(
[[figure]]
name = "picture"
x = "alpha"
y = "test.accuracy"
[[table]]
name = "accuracy"
rows = ["L", "h"]
columns = "alpha"
value = "test.accuracy"
percent = true
where = { L = 16 }
[[table]]
name = "hours"
title = "Hours <of>"
rows = ["h"]
value = "core_hours"
label = "hours of <work>"
)";

class SweepReportTest : public SweepResultsTest {
 protected:
  SweepReportTest() {
    measure_all([](const Point& point) { return 0.8 + 0.02 * value_of(point, "seed").get<double>(); });
    result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 0}}).state = kDiverged;
    result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 0}}).message = "the loss is <nan>";
    for (int seed : {0, 1}) result({{"L", 16}, {"h", "gelu"}, {"alpha", 0}, {"seed", seed}}).state = kDiverged;
    result({{"L", 16}, {"h", "gelu"}, {"alpha", 0.5}, {"seed", 1}}).state = kFailed;
    for (int seed : {0, 1}) remove({{"L", 16}, {"h", "gelu"}, {"alpha", 1}, {"seed", seed}});
    write_results();
  }

  void remove(const Point& point) {
    std::erase_if(results_, [&](const PointResult& one) { return same_point(one.point, point); });
  }
};

TEST_F(SweepReportTest, TablesHaveMeanDeviationAndCount) {
  const SweepData all = data(kTable);
  const Table table = tabulate(all, all.sweep.tables[0]);
  EXPECT_EQ(table.header, (std::vector<std::string>{"L", "activation", "alpha = 0", "alpha = 0.5", "alpha = 1", "no alpha"}));
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"16", "softmax", "", "", "", "81.00 ± 1.41 (2)"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"16", "relu", "82.00 (1), 1 diverged", "81.00 ± 1.41 (2)", "81.00 ± 1.41 (2)", ""}));
  EXPECT_EQ(table.rows[2], (std::vector<std::string>{"16", "gelu", "diverged", "80.00 (1 of 2)", "missing", ""}));
  const Table hours = tabulate(all, all.sweep.tables[1]);
  EXPECT_EQ(hours.header, (std::vector<std::string>{"activation", "hours of <work>"}));
  EXPECT_EQ(hours.rows.at(0), (std::vector<std::string>{"softmax", "0.01050 ± 0.00058 (4)"}));
}

TEST_F(SweepReportTest, SmallNumbersBesideLargeOnesKeepTheirDigits) {
  for (PointResult& one : results_) one.measures["test.variance"] = value_of(one.point, "h") == "softmax" ? 4303 : 0.015625;
  write_results();
  const SweepData all = data("[[table]]\nname = \"t\"\nrows = [\"h\"]\nvalue = \"test.variance\"\nwhere = { L = 49 }\n");
  const Table table = tabulate(all, all.sweep.tables[0]);
  EXPECT_EQ(table.rows.at(0).at(1), "4303 ± 0 (2)");
  EXPECT_EQ(table.rows.at(1).at(1), "0.0156 ± 0 (6)");
}

TEST_F(SweepReportTest, AMeasuredAxisUnfoldsEachRun) {
  for (PointResult& one : results_) one.measures["at_4.accuracy"] = 0.5, one.measures["at_16.accuracy"] = 0.75;
  write_results();
  for (PointResult& one : results_) one.measures["at_4.top5"] = 1;
  write_results();
  const std::string measures = R"([measured.tokens]
label = "tokens at evaluation"
values = [4, 16]
[derived]
seen = "at_{tokens}.accuracy"
seen_first = "at_{tokens}.top5"
gain = "2 * alpha"
)";
  const SweepData all = data(measures + R"([[table]]
name = "t"
rows = ["h"]
columns = "tokens"
value = "seen"
percent = true
where = { h = ["relu", "softmax"] }
[[figure]]
name = "f"
x = "tokens"
y = "seen"
lines = "h"
panels = "L"
)");
  EXPECT_EQ(all.unfolded.size(), 2 * all.points.size());
  EXPECT_EQ(state_text(all).substr(0, 9), "28 points");
  const Table table = tabulate(all, all.sweep.tables[0]);
  EXPECT_EQ(table.header, (std::vector<std::string>{"activation", "tokens at evaluation = 4", "tokens at evaluation = 16"}));
  EXPECT_EQ(table.rows.at(0), (std::vector<std::string>{"softmax", "50.00 ± 0.00 (4)", "75.00 ± 0.00 (4)"}));
  EXPECT_EQ(figure_files(all).size(), 1u);
  EXPECT_EQ(all.unfolded[0].quantity("seen_first"), 1);
  EXPECT_TRUE(std::isnan(all.unfolded[1].quantity("seen_first"))) << "no value has to have everything";
  EXPECT_TRUE(mentions(error_of([&] { data(measures + "other = \"at_{tokens}.loss\"\n"); }), {"there is no quantity 'at_16.loss'"}));
  EXPECT_TRUE(mentions(error_of([&] { data(measures + "other = \"at_{token}.accuracy\"\n"); }),
                       {"derived.other", "'{token}' is no measured axis"}));
  EXPECT_TRUE(mentions(error_of([&] { data(measures + "[[grid]]\naxes = [\"tokens\"]\n"); }), {"'tokens', along which runs are measured"}));
  EXPECT_TRUE(mentions(error_of([&] { data("[measured.h]\nvalues = [1]\n"); }), {"a measured axis cannot be called 'h'"}));
}

TEST_F(SweepReportTest, MarkdownIsRewrittenBetweenItsMarkers) {
  const SweepData all = data(kTable);
  const std::string rest = "\nAfter.\n<!-- begin: table of another sweep -->\nstays\n<!-- end: table of another sweep -->\n";
  const std::string hours = "<!-- begin: table hours --><!-- end: table hours -->\n";
  put("a.md", "Before.\n<!-- begin: table accuracy -->\nold\n<!-- end: table accuracy -->" + rest);
  put("b.md", hours);
  const auto files = markdown_files(all, {path("a.md"), path("b.md")});
  ASSERT_EQ(files.size(), 2u);
  const std::string& text = files[0].second;
  EXPECT_TRUE(text.starts_with("Before.\n<!-- begin: table accuracy -->\n\n| L | activation | alpha = 0 |"));
  EXPECT_TRUE(text.ends_with(" |\n\n<!-- end: table accuracy -->" + rest));
  EXPECT_TRUE(mentions(text, {"\n|---|---|---:|---:|---:|---:|\n", "\n| 16 | gelu | diverged |"}));
  EXPECT_EQ(text.find("old"), std::string::npos);
  EXPECT_TRUE(mentions(files[1].second, {"| softmax | 0.01050 ± 0.00058 (4) |"}));

  put("a.md", text);
  EXPECT_EQ(markdown_files(all, {path("a.md"), path("b.md")})[0].second, text) << "the same again";
  EXPECT_ERROR(markdown_files(all, {path("a.md")}), "a.md", "'hours'", "<!-- begin: table hours -->", "<!-- end: table hours -->");
  for (const char* wrong : {"<!-- begin: table hours -->", "<!-- end: table hours --><!-- begin: table hours -->"}) {
    put("b.md", wrong);
    EXPECT_ERROR(markdown_files(all, {path("a.md"), path("b.md")}), "b.md", "there must be one");
  }
  put("b.md", hours + hours);
  EXPECT_ERROR(markdown_files(all, {path("a.md"), path("b.md")}), "b.md", "there must be one");
}

TEST(TableMarkdown, CellsAreEscaped) {
  EXPECT_EQ(table_markdown({{"a|b", "c"}, {{"x_y", "<b>\n*"}}}, 1), "| a\\|b | c |\n|---|---:|\n| x\\_y | \\<b> \\* |\n");
}

TEST_F(SweepReportTest, ThePageTellsAllAndStandsAlone) {
  PointResult stranger = results_[0];
  stranger.point.back().second = 7;
  results_.push_back(stranger);
  write_results();
  const SweepData all = data(kTable);
  EXPECT_EQ(state_text(all), "28 points: 22 done, 3 diverged, 1 failed, 2 missing");
  const std::string html = render_html(all);
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_TRUE(mentions(
      html, {"<svg ", "28 points: 22 done, 3 diverged, 1 failed, 2 missing", "Missing: 2", "L=16 h=gelu alpha=1 seed=0", "Failed: 1",
             "Diverged: 3", "the loss is &lt;nan&gt;", "Hours &lt;of&gt;", "81.00 ± 1.41 (2)", "0.27", "2.6e+13",
             "a &lt;machine&gt; (26 points)", "0.2.0 (26 points)", "seed (repetitions)", "1 result of points that the sweep does not have",
             "hinge sweep " + path("small.toml"), "[[grid]]\naxes = [&quot;L&quot;", "# &lt;base&gt;"}));
  for (const char* forbidden : {"<script", "<link", "src=\"http", "<machine>", "<nan>", "<of>"})
    EXPECT_EQ(html.find(forbidden), std::string::npos) << forbidden;
  EXPECT_EQ(figure_files(all).at(0).first, "picture.svg");
  EXPECT_NE(html.find(figure_files(all).at(0).second), std::string::npos);
}

TEST_F(SweepReportTest, ThePageOfNothing) {
  results_.clear();
  write_results();
  const SweepData all = data(kTable);
  EXPECT_TRUE(figure_files(all).empty());
  EXPECT_TRUE(mentions(render_html(all), {"28 points: 28 missing", "Figure picture: no run is finished yet"}));
}

}  // namespace
}  // namespace hinge::experiment
