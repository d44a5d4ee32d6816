// Which products of the models are measured, and what is told of them.
#include "bench/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace hinge::bench {
namespace {

const GemmCase& find(const std::vector<GemmCase>& cases, const std::string& model, const std::string& layer, const std::string& kind) {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const GemmCase& c) { return c.model == model && c.layer == layer && c.kind == kind; });
  if (found == cases.end()) throw std::runtime_error("no product " + model + " " + layer + " " + kind);
  return *found;
}

TEST(GemmBench, EveryDistinctProductOfTheModelsOnce) {
  const std::vector<std::string> kinds = {"forward", "infer", "data", "weight"};
  const std::vector<GemmCase> cases = gemm_cases(gemm_model_names(), kinds, 1);
  std::set<std::tuple<int64_t, int64_t, int64_t, std::string>> seen;
  for (const GemmCase& c : cases) EXPECT_TRUE(seen.insert({c.R, c.N, c.K, c.kind}).second) << c.model << " " << c.layer << " " << c.kind;

  const GemmCase& fc2 = find(cases, "S/16", "fc2", "weight");
  EXPECT_EQ(std::make_tuple(fc2.R, fc2.N, fc2.K), std::make_tuple(8 * 196, 384, 4 * 384));
  EXPECT_EQ(fc2.flops(), 2.0 * 1568 * 384 * 1536);
  EXPECT_THROW(find(cases, "S/16", "patches", "data"), std::runtime_error) << "images need no gradient";
  EXPECT_THROW(find(cases, "S/8", "fc1", "forward"), std::runtime_error) << "it is that of S/16";
  EXPECT_THROW(find(cases, "decode", "qkv", "data"), std::runtime_error) << "beam search does not train";
  EXPECT_EQ(find(cases, "iwslt", "logits", "forward").R, 2000);

  // A worker has its part of a training batch; a step of beam search stays what it is.
  const std::vector<GemmCase> halves = gemm_cases(gemm_model_names(), kinds, 2);
  EXPECT_EQ(find(halves, "S/16", "fc2", "weight").R, 4 * 196);
  EXPECT_EQ(find(halves, "iwslt", "logits", "forward").R, 2000);
  EXPECT_EQ(find(halves, "decode", "qkv", "infer").R, 64);
  EXPECT_EQ(find(halves, "S/16", "fc2", "infer").R, 8 * 196);
}

TEST(GemmBench, RowsHaveRatesAndSharesOfThePeak) {
  GemmPlan plan;
  plan.models = {"28px/2"}, plan.kinds = {"forward", "infer", "data", "weight"}, plan.workers = 128, plan.warm_up = 0, plan.rounds = 1;
  const GemmReport report = run(plan, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 23u);  // 6 layers, pixels without a gradient
  EXPECT_GT(report.largest_error, 0);
  EXPECT_LT(report.largest_error, 1);
  for (const GemmRow& row : report.rows) {
    EXPECT_NEAR(row.gflops, 1e-6 * row.what.flops() / row.timing.median_ms, 1e-9 * row.gflops);
    EXPECT_NEAR(row.percent_of_peak, 100 * row.gflops / report.yardsticks.fma_peak_gflops, 1e-9);
  }
  const nlohmann::ordered_json json = to_json(report), &row = json.at("results")[2];
  EXPECT_EQ(row.at("layer"), "patches");
  EXPECT_EQ(row.at("kind"), "weight");
  EXPECT_EQ(row.at("R"), 196);
  EXPECT_EQ(row.at("workers"), 128);
  EXPECT_NE(table(report).find("28px/2    qkv      data        196     192     64"), std::string::npos) << table(report);
}

}  // namespace
}  // namespace hinge::bench
