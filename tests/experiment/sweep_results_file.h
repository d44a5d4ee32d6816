// A small sweep and its results, for tests of what is drawn from them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "../support/temporary_folder.h"
#include "experiment/sweep_data.h"

namespace hinge::experiment {

// Two lengths, two activations and three alphas, each with two seeds; softmax at both lengths without alpha.
inline constexpr const char* kSmallSweep = R"(
title = "Accuracy against alpha"
base = "base.toml"
results = "results/small.jsonl"
record = ["train/norm"]
[axes.L]
values = [{ value = 16, set = { "model.patch" = 7 } }, { value = 49, set = { "model.patch" = 4 } }]
[axes.h]
label = "activation"
key = "model.attention.h"
values = ["softmax", "relu", "gelu"]
[axes.alpha]
key = "model.attention.alpha"
values = [0, 0.5, 1]
[axes.seed]
key = "train.seed"
values = [0, 1]
[[grid]]
axes = ["L", "h", "alpha", "seed"]
h = ["relu", "gelu"]
[[grid]]
axes = ["L", "h", "seed"]
h = "softmax"
[measure]
test = "eval --split test"
)";

class SweepResultsTest : public support::TemporaryFolderTest {
 protected:
  SweepResultsTest() { put("base.toml", "task = \"vision\"  # <base>\n"); }

  // The small sweep and more of its file.
  SweepData data(const std::string& more) const {
    put("small.toml", kSmallSweep + more);
    Sweep sweep = read_sweep(path("small.toml"));
    const std::string results = sweep.results;
    return gather(std::move(sweep), read_results(results));
  }

  // All points are done, with accuracy as `accuracy` says.
  template <class Accuracy> void measure_all(const Accuracy& accuracy) {
    put("small.toml", kSmallSweep);
    for (const SweepPoint& point : read_sweep(path("small.toml")).points) {
      PointResult result{.point = point.point, .config = "c0ffee", .state = kDone};
      result.steps = 20, result.parameters = 1000, result.flops = 1e12, result.seconds = 36;
      result.core_hours = 0.01 + 0.001 * value_of(point.point, "seed").get<double>();
      const double value = accuracy(point.point);
      result.scores = {{"eval/accuracy", {{10, value / 2}, {20, value}}}, {"train/norm", {{5, 3}, {10, 2}}}};
      result.measures = {{"test.accuracy", value}};
      result.version = "0.2.0", result.machine = "a <machine>", result.finished = "2026-11-18T08:00:00Z";
      results_.push_back(result);
    }
    write_results();
  }

  PointResult& result(const Point& point) {
    for (PointResult& one : results_)
      if (same_point(one.point, point)) return one;
    throw std::logic_error("no point " + point_text(point));
  }

  void write_results() const {
    std::string text;
    for (const PointResult& one : results_) text += result_line(one) + "\n";
    put("results/small.jsonl", text);
  }

  std::vector<PointResult> results_;
};

}  // namespace hinge::experiment
