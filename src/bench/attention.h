// Measures the attention kernels: every case is checked against the reference first, then all are timed in turn, round after round, the
// FMA peak and oneDNN's sgemm among them, so that a machine that changes its speed changes all of them alike.
//
// Legend: B batch, H heads, L length, D head width. Flops counted: 4 B H L^2 D forward (two products), 10 B H L^2 D backward (five, the
// recomputed scores among them), the same for causal and for the linear order: rates compare times, not work.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/rounds.h"
#include "bench/zeros.h"
#include "experiment/svg_plot.h"
#include "hinge/kernels/attention.h"

namespace hinge::bench {

enum class Pass { forward, backward };

struct Shape {
  int64_t B = 1, H = 1, L = 1;
  bool operator==(const Shape&) const = default;
};

// What to measure: every combination of these. Identity is measured in its quadratic order and once more in its linear order.
struct AttentionPlan {
  std::vector<kernels::Activation> h;
  std::vector<Shape> shapes;
  std::vector<Pass> passes;
  std::vector<std::optional<ZeroShares>> zeros = {std::nullopt};  // nullopt: independent normal queries and keys
  std::vector<bool> causal = {false};
  std::vector<double> dropout = {0.0};
  int64_t D = 64;
  int threads = 1;
  int rounds = 15;
  double seconds_per_sample = 0.004;  // shorter calls are repeated until a sample lasts this long
};

struct AttentionCase {
  kernels::Activation h = kernels::Activation::relu;
  bool linear_order = false;  // identity only
  Pass pass = Pass::forward;
  Shape shape;
  std::optional<ZeroShares> zeros;
  bool causal = false;
  double dropout = 0.0;

  std::string h_name() const;  // "identity (linear)" for the linear order
  std::string name() const;    // everything but the shape, for example "relu backward, causal"
};

std::vector<AttentionCase> cases(const AttentionPlan&);
double flops(const AttentionCase&, int64_t D);
std::string pass_name(Pass);
std::string shape_name(const Shape&);  // "8x6x197"

struct AttentionRow {
  AttentionCase what;
  ZeroShares zeros;          // of the weights as they were, 0 for an h without exact zeros
  double skipped_share = 0;  // of the products that the kernel did not compute
  size_t scratch_bytes = 0;  // memory beyond inputs, outputs and gradients
  Timing timing;
  double gflops = 0;
  double percent_of_peak = 0, best_percent_of_peak = 0;  // of the median and of the fastest sample: what a quiet moment allows
};

struct AttentionReport {
  Yardsticks yardsticks;
  int cores = 1;
  double load = 0;  // running programs before the first measurement, mean of a minute
  int64_t D = 64;
  double largest_error = 0;  // of the check, as a share of what is allowed
  std::vector<AttentionRow> rows;
};

// A kernel gave something else than the reference.
struct WrongResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws WrongResult if the check fails and std::invalid_argument if the plan is empty, contradictory or does not fit into memory.
AttentionReport run(const AttentionPlan&, const ShowProgress& progress);

nlohmann::ordered_json to_json(const AttentionReport&);
std::string table(const AttentionReport&);
experiment::BarChart chart(const AttentionReport&);

}  // namespace hinge::bench
