// Figures of a sweep: what is grouped, averaged, marked as diverged, missing and held against a reference.
#include "experiment/sweep_figures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../support/errors.h"
#include "sweep_results_file.h"

namespace hinge::experiment {
namespace {

constexpr const char* kFigure = R"toml(
[derived]
gain = "L^(1-alpha)"
[[figure]]
name = "f"
x = "alpha"
y = "test.accuracy"
lines = "h"
panels = "L"
percent = true
reference = { h = "softmax" }
top_x = "gain"
)toml";

class SweepFiguresTest : public SweepResultsTest {
 protected:
  SweepFiguresTest() {
    measure_all([](const Point& point) {
      const bool softmax = value_of(point, "alpha").is_null(), gelu = value_of(point, "h") == "gelu";
      return (softmax ? 0.9 : 0.8 + 0.05 * value_of(point, "alpha").get<double>()) + (gelu ? 0.01 : 0) +
             0.02 * value_of(point, "seed").get<double>() + (value_of(point, "L") == 49 ? 0.03 : 0);
    });
  }

  LineChart chart(const std::string& text) const {
    const SweepData all = data(text);
    return draw(all, all.sweep.figures.at(0));
  }
};

TEST(Summary, IsThatOfASample) {
  const Summary summary = summarise({1, 2, 3, 6});
  EXPECT_EQ(summary.count, 4u);
  EXPECT_DOUBLE_EQ(summary.mean, 3);
  EXPECT_DOUBLE_EQ(summary.deviation, std::sqrt(14.0 / 3));
  EXPECT_EQ(summarise({5}).deviation, 0);
  EXPECT_TRUE(std::isnan(summarise({}).mean));
}

TEST_F(SweepFiguresTest, PanelsLinesAndSpread) {
  const LineChart drawn = chart(kFigure);
  EXPECT_EQ(drawn.title, "Accuracy against alpha");
  EXPECT_EQ(drawn.subtitle, "Mean ± one standard deviation over seed (2 runs each)");
  EXPECT_EQ(drawn.x_label, "alpha");
  EXPECT_EQ(drawn.y_label, "test.accuracy (%)");
  EXPECT_EQ(drawn.x_ticks, (std::vector<double>{0, 0.5, 1}));
  ASSERT_EQ(drawn.panels.size(), 2u);
  EXPECT_EQ(drawn.panels[1].title, "L = 49");
  ASSERT_EQ(drawn.panels[1].series.size(), 2u) << "softmax is no line of its own";
  const LineSeries& gelu = drawn.panels[1].series[1];
  EXPECT_EQ(gelu.label, "gelu");
  EXPECT_EQ(gelu.colour, 2u) << "its place on the axis, the same in all figures";
  ASSERT_EQ(gelu.points.size(), 3u);
  EXPECT_EQ(gelu.points[1].first, 0.5);
  EXPECT_NEAR(gelu.points[1].second, 100 * (0.8 + 0.025 + 0.01 + 0.01 + 0.03), 1e-9);
  EXPECT_NEAR(gelu.deviations[1], 2 / std::sqrt(2.0), 1e-9);
  EXPECT_EQ(gelu.samples.size(), 6u);
  EXPECT_TRUE(gelu.crosses.empty());
}

TEST_F(SweepFiguresTest, TheReferenceOfEachPanel) {
  const LineChart drawn = chart(kFigure);
  for (size_t panel : {0u, 1u}) {
    ASSERT_EQ(drawn.panels[panel].references.size(), 1u);
    EXPECT_EQ(drawn.panels[panel].references[0].label, "softmax");
    EXPECT_NEAR(drawn.panels[panel].references[0].value, panel == 0 ? 91 : 94, 1e-9);
    EXPECT_NEAR(drawn.panels[panel].references[0].deviation, 2 / std::sqrt(2.0), 1e-9);
  }
  // What keeps other activations out does not keep the reference out, nor does a value on an axis that it lacks.
  EXPECT_EQ(chart(std::string(kFigure) + "where = { h = \"relu\", alpha = [0, 1] }\n").panels[0].references.size(), 1u);
  // A reference with an axis of its own is of another part of the sweep.
  const std::string other = "[axes.width]\nkey = \"model.width\"\nvalues = [8]\n[[grid]]\naxes = [\"h\", \"width\"]\nh = \"softmax\"\n";
  EXPECT_EQ(chart(other + kFigure).subtitle.find("missing"), std::string::npos);
}

TEST_F(SweepFiguresTest, TheTopAxis) {
  const LineChart drawn = chart(kFigure);
  EXPECT_EQ(drawn.top_label, "gain = L^(1-alpha)");
  EXPECT_EQ(drawn.panels[1].top_ticks, (std::vector<std::pair<double, std::string>>{{0, "49"}, {0.5, "7"}, {1, "1"}}));
  const std::string flat =
      "[derived]\ngain = \"L^(1-alpha)\"\n[[figure]]\nname = \"f\"\nx = \"alpha\"\ny = \"test.accuracy\"\ntop_x = \"gain\"\n";
  EXPECT_ERROR(chart(flat), "small.toml", "figure 'f'", "gain", "16 and 49");
}

TEST_F(SweepFiguresTest, WhatDivergedIsACrossAndNotInTheMean) {
  result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 0}}).state = kDiverged;
  for (int seed : {0, 1}) result({{"L", 16}, {"h", "gelu"}, {"alpha", 1}, {"seed", seed}}).state = kDiverged;
  write_results();
  const LineChart drawn = chart(kFigure);
  EXPECT_EQ(drawn.subtitle, "Mean ± one standard deviation over seed (1 to 2 runs each)");
  const LineSeries &relu = drawn.panels[0].series[0], &gelu = drawn.panels[0].series[1];
  EXPECT_EQ(relu.crosses, std::vector<double>{0});
  EXPECT_NEAR(relu.points[0].second, 82, 1e-9) << "of the seed that did not";
  EXPECT_EQ(relu.deviations[0], 0);
  EXPECT_EQ(gelu.crosses, std::vector<double>{1});
  EXPECT_TRUE(std::isnan(gelu.points[2].second));
  EXPECT_TRUE(drawn.panels[1].series[0].crosses.empty());
  EXPECT_NE(render(drawn).find(">diverged</text>"), std::string::npos);
}

TEST_F(SweepFiguresTest, MissingAndFailedRunsAreCounted) {
  result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 0}}).state = kFailed;
  results_.pop_back();  // softmax at 49
  write_results();
  const LineChart drawn = chart(kFigure);
  EXPECT_EQ(drawn.subtitle, "Mean ± one standard deviation over seed (1 to 2 runs each); 2 runs are missing");
  EXPECT_EQ(drawn.panels[0].series[0].samples.size(), 5u);
  results_.clear();
  write_results();
  const LineChart empty = chart(kFigure);
  EXPECT_FALSE(has_points(empty));
  EXPECT_EQ(empty.subtitle, "28 runs are missing");
  EXPECT_EQ(empty.panels[1].top_ticks.size(), 3u) << "known beforehand";
}

TEST_F(SweepFiguresTest, CurvesOverSteps) {
  result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 1}}).state = kDiverged;
  result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 1}}).steps = 12;
  result({{"L", 16}, {"h", "relu"}, {"alpha", 0}, {"seed", 1}}).scores["eval/accuracy"].pop_back();
  write_results();
  const LineChart drawn = chart(R"(
[[figure]]
name = "f"
x = "step"
y = "eval/accuracy"
lines = "alpha"
reference = { h = "softmax" }
where = { L = 16, h = "relu" }
)");
  EXPECT_EQ(drawn.x_label, "training step");
  ASSERT_EQ(drawn.panels.at(0).series.size(), 4u);
  const LineSeries& zero = drawn.panels[0].series[0];
  EXPECT_EQ(zero.label, "alpha = 0");
  ASSERT_EQ(zero.points.size(), 2u);
  EXPECT_EQ(zero.points[0].first, 10);
  EXPECT_NEAR(zero.points[0].second, 0.405, 1e-9) << "with the run that diverges later";
  EXPECT_NEAR(zero.points[1].second, 0.8, 1e-9);
  EXPECT_EQ(zero.crosses, std::vector<double>{12});
  EXPECT_TRUE(drawn.panels[0].series[3].reference) << "softmax as a curve";
  EXPECT_ERROR(chart("[[figure]]\nname = \"f\"\nx = \"step\"\ny = \"eval/bleu\"\n"), "eval/bleu", "eval/accuracy, train/norm", "record");
}

TEST_F(SweepFiguresTest, AMeasuredXIsTheMeanOverSeeds) {
  const LineChart drawn = chart("[[figure]]\nname = \"f\"\nx = \"core_hours\"\ny = \"eval.accuracy\"\nlines = \"h\"\nwhere = { L = 16 }\n");
  EXPECT_EQ(drawn.x_label, "core-hours of training");
  ASSERT_EQ(drawn.panels.at(0).series.size(), 3u);
  const LineSeries& relu = drawn.panels[0].series[1];
  ASSERT_EQ(relu.points.size(), 3u) << "one for each alpha";
  EXPECT_NEAR(relu.points[0].first, 0.0105, 1e-9);
  EXPECT_EQ(relu.samples.size(), 6u);
  EXPECT_TRUE(drawn.x_ticks.empty());
}

TEST_F(SweepFiguresTest, WordsAsX) {
  const LineChart drawn = chart("[[figure]]\nname = \"f\"\nx = \"h\"\ny = \"test.accuracy\"\nwhere = { alpha = 1, L = 16 }\n");
  EXPECT_EQ(drawn.x_names, (std::vector<std::string>{"relu", "gelu"})) << "those that are drawn";
  EXPECT_EQ(drawn.x_label, "activation");
  EXPECT_EQ(drawn.panels.at(0).series.at(0).points.at(1).first, 1);
  EXPECT_NE(render(drawn).find(">gelu</text>"), std::string::npos);
}

TEST_F(SweepFiguresTest, LabelsAreEscaped) {
  const std::string svg = render(
      chart("[[figure]]\nname = \"f\"\ntitle = \"a < b\"\nx = \"alpha\"\ny = \"test.accuracy\"\nx_label = \"<i>\"\ny_label = \"R&D\"\n"));
  EXPECT_TRUE(support::mentions(svg, {"a &lt; b", "&lt;i&gt;", "R&amp;D"}));
  EXPECT_EQ(svg.find("<i>"), std::string::npos);
}

TEST_F(SweepFiguresTest, DerivedQuantitiesBuildOnEachOther) {
  const SweepData all = data("[derived]\nerror = \"1-test.accuracy\"\ndouble = \"2*error\"\nnorm = \"train.norm\"\n");
  for (const DataPoint& point : all.points) {
    EXPECT_NEAR(point.quantity("double"), 2 - 2 * point.quantity("test.accuracy"), 1e-12);
    EXPECT_EQ(point.quantity("norm"), 2) << "the last value of a metric";
  }
}

TEST_F(SweepFiguresTest, WrongNamesAndFormulasAreNamed) {
  EXPECT_ERROR(data("[derived]\ngain = \"L^(1-alfa)\"\n"), "small.toml", "derived.gain", "'alfa'", "Did you mean 'alpha'?", "core_hours");
  EXPECT_ERROR(data("[derived]\ngain = \"L^\"\n"), "small.toml", "derived.gain", "'L^' is wrong");
  EXPECT_ERROR(data("[derived]\nword = \"h+1\"\n"), "derived.word", "'h'") << "an axis of words";
  EXPECT_ERROR(data("[derived]\nL = \"alpha\"\n"), "derived.L", "already");
  EXPECT_ERROR(chart("[[figure]]\nname = \"f\"\nx = \"alpha\"\ny = \"test.acuracy\"\n"), "figure 'f'", "Did you mean 'test.accuracy'?");
  EXPECT_ERROR(chart("[[figure]]\nname = \"f\"\nx = \"beta\"\ny = \"test.accuracy\"\n"), "figure 'f'", "'beta'");
  EXPECT_ERROR(chart("[[figure]]\nname = \"f\"\nx = \"step\"\ny = \"eval/accuracy\"\ntop_x = \"L\"\n"), "top_x needs");
  // Before the first point is done, nobody knows what a measure gives.
  results_.clear();
  write_results();
  EXPECT_EQ(data("[derived]\nerror = \"1-test.acuracy+eval.loss\"\n").points.size(), 28u);
  EXPECT_ERROR(data("[derived]\nerror = \"1-tset.accuracy\"\n"), "'tset.accuracy'");
}

}  // namespace
}  // namespace hinge::experiment
