// The benchmark measures what it says, and does not measure what is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/attention.h"
#include "bench/attention_problem.h"
#include "bench/timing.h"
#include "hinge/kernels/parallel.h"

namespace hinge::bench {
namespace {

using kernels::Activation;

AttentionPlan small_plan() {
  AttentionPlan plan;
  plan.h = {Activation::relu, Activation::identity};
  plan.shapes = {{2, 3, 20}, {1, 2, 33}};
  plan.passes = {Pass::forward, Pass::backward};
  plan.D = 16;
  plan.threads = 1;
  plan.rounds = 2;
  plan.seconds_per_sample = 1e-4;
  return plan;
}

TEST(Timing, Quantiles) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(quantile({10, 20, 30, 40, 50}, 0.25), 20);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.75), 7);
}

TEST(AttentionBench, CasesAreAllCombinations) {
  AttentionPlan plan = small_plan();
  EXPECT_EQ(cases(plan).size(), 2u * 3u * 2u);  // shapes x (relu, identity, identity in linear order) x passes
  plan.causal = {false, true};
  plan.zeros = {std::nullopt, ZeroShares{0.65, 0.4}};
  EXPECT_EQ(cases(plan).size(), 2u * 3u * 2u * 4u);
  plan.dropout = {0.0, 0.1};
  EXPECT_EQ(cases(plan).size(), 2u * (2u * 2u + 1u) * 2u * 4u);  // no linear order with dropout
}

TEST(AttentionBench, FlopsAndNames) {
  AttentionCase which{Activation::relu, false, Pass::forward, {8, 6, 50}, std::nullopt, false, 0.0};
  EXPECT_DOUBLE_EQ(flops(which, 64), 4.0 * 48 * 50 * 50 * 64);
  EXPECT_EQ(which.name(), "relu forward");
  which.pass = Pass::backward;
  EXPECT_DOUBLE_EQ(flops(which, 64), 10.0 * 48 * 50 * 50 * 64);
  which = {Activation::identity, true, Pass::backward, {8, 6, 50}, ZeroShares{0.65, 0.4}, true, 0.1};
  EXPECT_EQ(which.name(), "identity (linear) backward, zeros 0.65:0.4, causal, dropout 0.1");
}

// Queries and keys on a grid have scores of exactly 0, where a slope would depend on how they are rounded.
TEST(AttentionBench, WidthsWithoutAnExactRootAreRight) {
  AttentionPlan plan = small_plan();
  plan.h = {kernels::Activation::relu}, plan.passes = {Pass::backward}, plan.shapes = {{1, 2, 197}}, plan.rounds = 1;
  for (const int64_t D : {24, 80}) {
    plan.D = D;
    EXPECT_LE(run(plan, [](const std::string&) {}).largest_error, 1);
  }
}

TEST(AttentionBench, ReportHoldsEveryCase) {
  const AttentionPlan plan = small_plan();
  const AttentionReport report = run(plan, [](const std::string&) {});
  const nlohmann::ordered_json json = to_json(report);
  ASSERT_EQ(json["results"].size(), cases(plan).size());
  EXPECT_GT(json["machine"]["fma_peak_gflops"], 0);
  EXPECT_GT(json["machine"]["sgemm_gflops"], 0);
  for (const auto& row : json["results"]) {
    const double B = row["B"], H = row["H"], L = row["L"], D = row["D"], ms = row["median_ms"], gflops = row["gflops"];
    EXPECT_NEAR(gflops, (row["pass"] == "forward" ? 4 : 10) * B * H * L * L * D / ms * 1e-6, 1e-6 * gflops);
    EXPECT_NEAR(row["percent_of_peak"].get<double>(), 100 * gflops / json["machine"]["fma_peak_gflops"].get<double>(), 1e-6);
    const double faster = row["median_ms"].get<double>() / row["fastest_ms"].get<double>();
    EXPECT_NEAR(row["best_percent_of_peak"].get<double>(), row["percent_of_peak"].get<double>() * faster, 1e-6);
    EXPECT_LE(row["lower_quartile_ms"], row["median_ms"]);
    EXPECT_GE(row["upper_quartile_ms"], row["median_ms"]);
    EXPECT_EQ(row["h"] == "relu", row["zeros"] > 0.0);
  }
  const experiment::BarChart bars = chart(report);
  EXPECT_EQ(bars.groups, (std::vector<std::string>{"2x3x20", "1x2x33"}));
  EXPECT_EQ(bars.series.size(), 6u);
  const std::string text = table(report), plot = text.substr(std::min(text.size(), text.find("Share of the FMA peak")));
  EXPECT_NE(text.find("identity (linear) backward"), std::string::npos);
  EXPECT_EQ(std::count(plot.begin(), plot.end(), '\n'), 1 + std::ssize(report.rows)) << plot;  // a heading, then a bar for each
}

TEST(AttentionBench, PlanThatCannotBeRun) {
  const auto silent = [](const std::string&) {};
  AttentionPlan plan = small_plan();
  plan.shapes = {{1 << 20, 1 << 20, 1 << 20}};
  EXPECT_THROW(run(plan, silent), std::invalid_argument);
  plan = small_plan();
  plan.passes.clear();
  EXPECT_THROW(run(plan, silent), std::invalid_argument);
  plan = small_plan();
  plan.threads = 2;
  plan.zeros = {ZeroShares{0.65, 0.4}};
  plan.D = 1;
  EXPECT_THROW(run(plan, silent), std::invalid_argument) << "thrown by the threads that fill the inputs";
}

// A Parallel that leaves out the last task, as a wrong kernel might.
class Forgetful final : public kernels::Parallel {
 public:
  int workers() const override { return 1; }
  void run(int64_t tasks, const std::function<void(int64_t, int)>& body) override {
    for (int64_t task = 0; task + (forgets ? 1 : 0) < tasks; ++task) body(task, 0);
  }
  bool forgets = false;
};

TEST(AttentionProblem, CheckAcceptsTheKernelsAndSeesWhatIsMissing) {
  // 300 is long enough that blocks of rows are checked.
  for (const int64_t L : {40, 300})
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const Activation h : {Activation::relu, Activation::softmax})
        for (const bool causal : {false, true})
          for (const double dropout : {0.0, 0.2}) {
            Forgetful parallel;
            const AttentionCase which{h, false, pass, {1, 1, L}, std::nullopt, causal, dropout};
            AttentionProblem problem(which.shape, 16, std::nullopt, parallel);
            EXPECT_LE(problem.check(which), 1) << which.name() << " " << L;
            parallel.forgets = true;
            EXPECT_GT(problem.check(which), 1) << which.name() << " " << L;
          }
}

}  // namespace
}  // namespace hinge::bench
