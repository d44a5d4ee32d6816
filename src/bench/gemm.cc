#include "bench/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <tuple>

#include "bench/timing.h"
#include "ops/gemm.h"

namespace hinge::bench {
namespace {

using at::Tensor;

struct GemmLayer {
  const char* name;
  int64_t rows, N, K;
  bool data = true;             // has a data gradient: pixels have none
  int64_t most_rows = 1 << 30;  // that are multiplied at a time
};

struct GemmModel {
  const char* name;
  bool trains;  // or only infers
  std::vector<GemmLayer> layers;
};

// `tokens` of width C an image.
GemmModel vit_products(const char* name, int64_t images, int64_t tokens, int64_t C, int64_t pixels, int64_t classes) {
  const int64_t rows = images * tokens;
  return {name,
          true,
          {{"patches", rows, C, pixels, false},
           {"qkv", rows, 3 * C, C},
           {"proj", rows, C, C},
           {"fc1", rows, 4 * C, C},
           {"fc2", rows, C, 4 * C},
           {"head", images, classes, C}}};
}

// Of the size iwslt; projected_cross_entropy takes at most 2^25 logits at a time, 2000 rows if there are 4000.
GemmModel translation_products(const char* name, int64_t rows, bool trains) {
  return {name,
          trains,
          {{"qkv", rows, 1536, 512},
           {"proj", rows, 512, 512},
           {"fc1", rows, 1024, 512},
           {"fc2", rows, 512, 1024},
           {"logits", rows, 10000, 512, true, 2000}}};
}

const std::vector<GemmModel>& gemm_models() {
  static const std::vector<GemmModel> models = {
      vit_products("S/16", 8, 196, 384, 3 * 16 * 16, 1000),
      vit_products("S/8", 2, 784, 384, 3 * 8 * 8, 1000),
      vit_products("28px/4", 128, 49, 192, 4 * 4, 10),
      vit_products("28px/2", 128, 196, 64, 2 * 2, 10),
      translation_products("iwslt", 4000, true),
      translation_products("decode", 16 * 4, false),
      translation_products("decode/1", 4, false),
  };
  return models;
}

// A layer with its operands and results.
struct GemmSubject {
  GemmCase what;
  Tensor a, b, c;  // the operands as the kind reads them, and the result
  std::shared_ptr<PackedWeights> packed = std::make_shared<PackedWeights>();
  int calls = 1;  // a sample

  explicit GemmSubject(const GemmCase& given) : what(given) {
    const auto drawn = [](int64_t rows, int64_t columns) { return at::randn({rows, columns}); };
    const auto [R, N, K] = std::tie(what.R, what.N, what.K);
    if (is_forward()) a = drawn(R, K), b = drawn(N, K), c = at::empty({R, N});
    if (what.kind == "data") a = drawn(R, N), b = drawn(N, K), c = at::empty({R, K});
    if (what.kind == "weight") a = drawn(R, N), b = drawn(R, K), c = at::empty({N, K});
    constexpr double kSampleFlops = 2e8;  // a millisecond or two
    calls = static_cast<int>(std::clamp(kSampleFlops / what.flops(), 1.0, 1e4));
  }

  bool is_forward() const { return what.kind == "forward" || what.kind == "infer"; }

  void run() const {
    if (what.kind == "forward") linear_into(a, b, {}, {}, c);
    if (what.kind == "infer") {
      const PackedWeights::Use use(*packed);
      linear_into(a, b, {}, {}, c);
    }
    if (what.kind == "data") product_into(a, b, c);
    if (what.kind == "weight") transposed_product_into(a, b, c);
  }

  // The largest error in some rows of the result as a share of what the sum's rounding allows: depth eps sum |a| |b|.
  double error() const {
    run();
    const int64_t rows = c.size(0);
    const Tensor some = at::linspace(0, static_cast<double>(rows - 1), 8, at::kDouble).to(at::kLong);
    const Tensor left = what.kind == "weight" ? a.index_select(1, some).t() : a.index_select(0, some);
    const Tensor l = left.to(at::kDouble), r = (is_forward() ? b.t() : b).to(at::kDouble);
    const double eps = std::numeric_limits<float>::epsilon();
    const Tensor allowed = at::mm(l.abs(), r.abs()) * (eps * static_cast<double>(l.size(1)));
    return ((c.index_select(0, some) - at::mm(l, r)).abs() / allowed).max().item<double>();
  }
};

}  // namespace

std::vector<std::string> gemm_model_names() {
  std::vector<std::string> names;
  for (const GemmModel& model : gemm_models()) names.emplace_back(model.name);
  return names;
}

std::vector<GemmCase> gemm_cases(const std::vector<std::string>& models, const std::vector<std::string>& kinds, int64_t workers) {
  std::vector<GemmCase> cases;
  std::set<std::tuple<int64_t, int64_t, int64_t, std::string>> seen;
  for (const GemmModel& model : gemm_models()) {
    if (std::find(models.begin(), models.end(), model.name) == models.end()) continue;
    for (const GemmLayer& layer : model.layers)
      for (const std::string& kind : kinds) {
        const bool infers = kind == "infer";
        if ((!infers && !model.trains) || (kind == "data" && !layer.data)) continue;
        const int64_t part = infers ? layer.rows : std::max<int64_t>(1, layer.rows / workers), R = std::min(part, layer.most_rows);
        if (seen.insert({R, layer.N, layer.K, kind}).second) cases.push_back({model.name, layer.name, kind, R, layer.N, layer.K});
      }
  }
  return cases;
}

GemmReport run(const GemmPlan& plan, const ShowProgress& progress) {
  at::set_num_threads(plan.threads);
  at::manual_seed(1);
  Rounds rounds(plan.threads, progress);
  GemmReport report;
  report.workers = plan.workers;
  std::vector<GemmSubject> subjects;
  for (const GemmCase& what : gemm_cases(plan.models, plan.kinds, plan.workers)) {
    const std::string name = fmt::format("{}, {}, {}", what.model, what.layer, what.kind);
    progress("checking " + name);
    subjects.emplace_back(what);
    const double error = subjects.back().error();
    if (!(error < 1))
      throw std::runtime_error(fmt::format("{}: the error is {:.2g} times what is allowed; nothing was measured", name, error));
    report.largest_error = std::max(report.largest_error, error);
  }
  const std::vector<Timing> timings = rounds.measure("products", subjects.size(), plan.warm_up, plan.rounds, [&](size_t i) {
    return seconds_per_call(subjects[i].calls, [&] { subjects[i].run(); });
  });
  report.yardsticks = rounds.yardsticks();
  for (size_t i = 0; i < subjects.size(); ++i) {
    const double gflops = timings[i].gflops(subjects[i].what.flops());
    report.rows.push_back({subjects[i].what, timings[i], gflops, report.yardsticks.percent_of_peak(gflops)});
  }
  return report;
}

nlohmann::ordered_json to_json(const GemmReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const GemmRow& row : report.rows) {
    nlohmann::ordered_json json = {
        {"model", row.what.model}, {"layer", row.what.layer}, {"kind", row.what.kind},     {"R", row.what.R},
        {"N", row.what.N},         {"K", row.what.K},         {"workers", report.workers}, {"threads", report.yardsticks.threads}};
    add_timing(json, row.timing);
    json["gflops"] = row.gflops;
    json["percent_of_peak"] = row.percent_of_peak;
    results.push_back(json);
  }
  return {{"machine", to_json(report.yardsticks)}, {"largest_error", report.largest_error}, {"results", results}};
}

std::string table(const GemmReport& report) {
  std::string text = report.yardsticks.heading();
  text += fmt::format("Checked against float64: errors are at most {:.1g} of what rounding allows.\n", report.largest_error);
  text += "y = x w^T, x [R, K], w [N, K]: forward y, infer y with packed w, data dx = dy w, weight dw = dy^T x.\n\n";
  text += fmt::format("  {:8}  {:7}  {:7}  {:>6}  {:>6}  {:>5}  {:>10}  {:>15}  {:>8}  {:>9}\n", "model", "layer", "kind", "R", "N", "K",
                      "median ms", "quartiles ms", "GFLOP/s", "% of peak");
  for (const GemmRow& row : report.rows)
    text += fmt::format("  {:8}  {:7}  {:7}  {:>6}  {:>6}  {:>5}  {:>10.3f}  {:>15}  {:>8.1f}  {:>9.1f}\n", row.what.model, row.what.layer,
                        row.what.kind, row.what.R, row.what.N, row.what.K, row.timing.median_ms, row.timing.quartiles(3), row.gflops,
                        row.percent_of_peak);
  return text;
}

}  // namespace hinge::bench
