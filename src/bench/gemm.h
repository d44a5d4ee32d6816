// Measures the dense products of the models, as their layers call them: every distinct shape, forward, data gradient and weight gradient.
// Checked against float64 first, then timed in turn, the FMA peak among them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/rounds.h"

namespace hinge::bench {

// Vision transformers as in bench/vit.h; iwslt, which bench/translate.h trains; and its beam search, where weights serve one step after
// another.
std::vector<std::string> gemm_model_names();

// A layer y = x w^T, with x [R, K], w [N, K]. Its products: y itself in training (forward) and with packed weights (infer), dx = dy w
// (data), dw = dy^T x (weight).
struct GemmCase {
  std::string model, layer, kind;
  int64_t R = 0, N = 0, K = 0;

  double flops() const { return 2.0 * static_cast<double>(R) * static_cast<double>(N) * static_cast<double>(K); }
};
// Of one worker's part of a training batch; infer has the whole. Layers of one shape count once, in the first model that has it.
std::vector<GemmCase> gemm_cases(const std::vector<std::string>& models, const std::vector<std::string>& kinds, int64_t workers);

struct GemmPlan {
  std::vector<std::string> models, kinds;  // kinds: forward, infer, data, weight
  int64_t workers = 1;                     // that a training batch is cut for
  int threads = 1;
  int warm_up = 2;
  int rounds = 7;
};

struct GemmRow {
  GemmCase what;
  Timing timing;
  double gflops = 0, percent_of_peak = 0;
};

struct GemmReport {
  Yardsticks yardsticks;
  int64_t workers = 1;
  double largest_error = 0;  // as a share of what rounding allows
  std::vector<GemmRow> rows;
};

GemmReport run(const GemmPlan& plan, const ShowProgress& progress);
nlohmann::ordered_json to_json(const GemmReport& report);
std::string table(const GemmReport& report);

}  // namespace hinge::bench
