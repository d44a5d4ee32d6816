// The rounds, and what is told of them.
#include "bench/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "bench/attention_problem.h"
#include "bench/machine.h"
#include "bench/rounds.h"
#include "bench/timing.h"
#include "support/progress.h"

namespace hinge::bench {
namespace {

// Problems are shared by the cases that differ in h, pass, visibility or dropout only.
class Problems {
 public:
  Problems(const AttentionPlan& plan, kernels::Parallel& parallel) {
    for (const Shape& shape : plan.shapes)
      for (const auto& zeros : plan.zeros)
        if (!problems_.count(key(shape, zeros)))
          problems_[key(shape, zeros)] = std::make_unique<AttentionProblem>(shape, plan.D, zeros, parallel);
  }
  AttentionProblem& of(const AttentionCase& which) { return *problems_.at(key(which.shape, which.zeros)); }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, double, double>;
  static Key key(const Shape& shape, const std::optional<ZeroShares>& zeros) {
    return {shape.B, shape.H, shape.L, zeros ? zeros->weights : -1, zeros ? zeros->groups : -1};
  }
  std::map<Key, std::unique_ptr<AttentionProblem>> problems_;
};

void require_memory(const AttentionPlan& plan) {
  double needed = 0;
  for (const Shape& shape : plan.shapes)
    needed += static_cast<double>(plan.zeros.size()) * static_cast<double>(shape.B) * static_cast<double>(shape.H) *
              static_cast<double>(shape.L) * static_cast<double>(9 * plan.D + 1) * sizeof(float);
  const double available = static_cast<double>(probe_memory().available_bytes), gib = 1024.0 * 1024.0 * 1024.0;
  if (needed > 0.8 * available)
    throw std::invalid_argument(fmt::format("these shapes need {:.1f} GiB of memory and {:.1f} are available: choose fewer or smaller ones",
                                            needed / gib, available / gib));
}

// How many calls make a sample of the wanted length.
int calls_per_sample(double seconds_per_call, double seconds_per_sample) {
  return static_cast<int>(std::clamp(std::ceil(seconds_per_sample / std::max(seconds_per_call, 1e-9)), 1.0, 1e5));
}

}  // namespace

std::string AttentionCase::h_name() const { return std::string(kernels::activation_name(h)) + (linear_order ? " (linear)" : ""); }

std::string AttentionCase::name() const {
  std::string text = h_name() + " " + pass_name(pass);
  if (zeros) text += fmt::format(", zeros {:g}:{:g}", zeros->weights, zeros->groups);
  if (causal) text += ", causal";
  if (dropout > 0) text += fmt::format(", dropout {:g}", dropout);
  return text;
}

std::string pass_name(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }
std::string shape_name(const Shape& shape) { return fmt::format("{}x{}x{}", shape.B, shape.H, shape.L); }

double flops(const AttentionCase& which, int64_t D) {
  const double L = static_cast<double>(which.shape.L);
  return (which.pass == Pass::forward ? 4.0 : 10.0) * static_cast<double>(which.shape.B * which.shape.H) * L * L * static_cast<double>(D);
}

std::vector<AttentionCase> cases(const AttentionPlan& plan) {
  std::vector<AttentionCase> all;
  for (const Shape& shape : plan.shapes)
    for (const kernels::Activation h : plan.h)
      for (const bool linear : {false, true}) {
        if (linear && h != kernels::Activation::identity) continue;
        for (const auto& zeros : plan.zeros)
          for (const bool causal : plan.causal)
            for (const double dropout : plan.dropout) {
              if (linear && dropout > 0) continue;  // dropout takes each weight by itself: there is no linear order
              for (const Pass pass : plan.passes) all.push_back({h, linear, pass, shape, zeros, causal, dropout});
            }
      }
  return all;
}

AttentionReport run(const AttentionPlan& plan, const ShowProgress& progress) {
  const std::vector<AttentionCase> all = cases(plan);
  if (all.empty() || plan.rounds < 1) throw std::invalid_argument("nothing to measure: choose at least one h, shape, pass and round");
  require_memory(plan);
  Rounds rounds(plan.threads, progress);
  Problems problems(plan, rounds.parallel());

  AttentionReport report;
  const Cpu cpu = probe_cpu();
  report.cores = cpu.cores;
  report.load = cpu.load;
  report.D = plan.D;

  for (size_t i = 0; i < all.size(); ++i) {
    progress(fmt::format("checking {} of {} against the reference: {} at {}", i + 1, all.size(), all[i].name(), shape_name(all[i].shape)));
    const double error = problems.of(all[i]).check(all[i]);
    report.largest_error = std::max(report.largest_error, error);
    if (!(error <= 1))
      throw WrongResult(fmt::format(
          "{} at {} is wrong: its error against the float64 reference is {:.3g} times what rounding allows; nothing was measured",
          all[i].name(), shape_name(all[i].shape), error));
  }

  // Warm up, and find how often a short call must be repeated.
  std::vector<int> calls;
  std::vector<AttentionRow> rows(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    progress(fmt::format("warming up {} of {}", i + 1, all.size()));
    AttentionProblem& problem = problems.of(all[i]);
    rows[i].skipped_share = problem.skipped_share(all[i]);
    kernels::take_scratch_peak();
    calls.push_back(calls_per_sample(seconds_per_call(1, [&] { problem.run(all[i]); }), plan.seconds_per_sample));
    rows[i].scratch_bytes = kernels::take_scratch_peak();
  }
  const std::vector<Timing> timings = rounds.measure("measuring", all.size(), /*warm_up=*/0, plan.rounds, [&](size_t i) {
    AttentionProblem& problem = problems.of(all[i]);
    problem.prepare(all[i]);
    if (calls[i] > 1) problem.run(all[i]);  // a short call starts with its data in the cache, as the repeated ones do
    return seconds_per_call(calls[i], [&] { problem.run(all[i]); });
  });
  report.yardsticks = rounds.yardsticks();
  for (size_t i = 0; i < all.size(); ++i) {
    AttentionRow& row = rows[i];
    row.what = all[i];
    row.timing = timings[i];
    row.gflops = row.timing.gflops(flops(all[i], plan.D));
    row.percent_of_peak = report.yardsticks.percent_of_peak(row.gflops);
    row.best_percent_of_peak = row.percent_of_peak * row.timing.median_ms / row.timing.fastest_ms;
    row.zeros = problems.of(all[i]).zero_shares(all[i]);
  }
  report.rows = std::move(rows);
  return report;
}

nlohmann::ordered_json to_json(const AttentionReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const AttentionRow& row : report.rows) {
    const AttentionCase& what = row.what;
    nlohmann::ordered_json json = {{"h", what.h_name()},
                                   {"pass", pass_name(what.pass)},
                                   {"B", what.shape.B},
                                   {"H", what.shape.H},
                                   {"L", what.shape.L},
                                   {"D", report.D},
                                   {"threads", report.yardsticks.threads},
                                   {"causal", what.causal},
                                   {"dropout", what.dropout},
                                   {"zeros", row.zeros.weights},
                                   {"zero_groups", row.zeros.groups},
                                   {"skipped_share", row.skipped_share},
                                   {"scratch_bytes", row.scratch_bytes}};
    add_timing(json, row.timing);
    json["slowest_ms"] = row.timing.slowest_ms;
    json["gflops"] = row.gflops;
    json["percent_of_peak"] = row.percent_of_peak;
    json["best_percent_of_peak"] = row.best_percent_of_peak;
    results.push_back(json);
  }
  nlohmann::ordered_json machine = to_json(report.yardsticks);
  machine["load"] = report.load;
  return {{"machine", machine}, {"results", results}};
}

std::string table(const AttentionReport& report) {
  size_t widest = 4;
  for (const AttentionRow& row : report.rows) widest = std::max(widest, row.what.name().size());
  std::string text = report.yardsticks.heading(fmt::format(", D {}", report.D));
  text +=
      fmt::format("Checked against the float64 reference: largest error {:.0f}% of what rounding allows.\n", 100 * report.largest_error);
  if (report.load > 0.5 * report.cores)
    text += fmt::format("Other programs kept the processor busy (load {:.1f} on {} cores): these numbers are low and unsteady.\n",
                        report.load, report.cores);
  const Shape* shape = nullptr;
  for (const AttentionRow& row : report.rows) {
    if (!shape || !(*shape == row.what.shape)) {
      shape = &row.what.shape;
      text += fmt::format("\nB*H {}, L {}  ({})\n", shape->B * shape->H, shape->L, shape_name(*shape));
      text += fmt::format("  {:{}}  {:>10}  {:>17}  {:>8}  {:>9}  {:>6}  {:>6}  {:>11}  {:>7}  {:>10}\n", "case", widest, "median ms",
                          "quartiles ms", "GFLOP/s", "% of peak", "best %", "zeros", "zero groups", "skipped", "scratch MB");
    }
    const auto share = [](double x) { return x > 0 ? fmt::format("{:.1f}%", 100 * x) : std::string("-"); };
    text += fmt::format("  {:{}}  {:>10.3f}  {:>17}  {:>8.1f}  {:>9.1f}  {:>6.1f}  {:>6}  {:>11}  {:>7}  {:>10.1f}\n", row.what.name(),
                        widest, row.timing.median_ms, row.timing.quartiles(3), row.gflops, row.percent_of_peak, row.best_percent_of_peak,
                        share(row.zeros.weights), share(row.zeros.groups), share(row.skipped_share),
                        static_cast<double>(row.scratch_bytes) / (1 << 20));
  }
  text += "\nShare of the FMA peak, by the medians\n";
  shape = nullptr;
  for (const AttentionRow& row : report.rows) {
    const bool other = !shape || !(*shape == row.what.shape);
    shape = &row.what.shape;
    text += fmt::format("  {:<12}  {:{}}  {} {:>3.0f}%\n", other ? shape_name(*shape) : "", row.what.name(), widest,
                        support::bar(row.percent_of_peak / 100, 40), row.percent_of_peak);
  }
  return text;
}

experiment::BarChart chart(const AttentionReport& report) {
  experiment::BarChart chart;
  chart.title = "Attention: share of the FMA peak";
  const Yardsticks& yardsticks = report.yardsticks;
  const std::string machine = yardsticks.machine(fmt::format(", D {}", report.D));
  chart.subtitle = fmt::format("{}; FMA peak {:.0f} GFLOP/s", machine, yardsticks.fma_peak_gflops);
  chart.x_label = "batch x heads x length";
  chart.y_label = "% of the FMA peak";
  const double sgemm = yardsticks.percent_of_peak(yardsticks.sgemm_gflops);
  chart.references.push_back({fmt::format("oneDNN sgemm {:.0f}%", sgemm), sgemm});

  std::map<std::string, size_t> series_of, colour_of;
  for (const AttentionRow& row : report.rows) {
    const std::string group = shape_name(row.what.shape), label = row.what.name();
    if (chart.groups.empty() || chart.groups.back() != group) chart.groups.push_back(group);
    AttentionCase both_passes = row.what;
    both_passes.pass = Pass::forward;
    const size_t colour = colour_of.try_emplace(both_passes.name(), colour_of.size()).first->second;
    if (series_of.try_emplace(label, chart.series.size()).second)
      chart.series.push_back({label, {}, colour, row.what.pass == Pass::backward});
    chart.series[series_of[label]].values.push_back(row.percent_of_peak);
  }
  return chart;
}

}  // namespace hinge::bench
