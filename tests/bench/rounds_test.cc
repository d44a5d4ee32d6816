// The rounds of a benchmark, and what is said of its samples.
#include "bench/rounds.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hinge::bench {
namespace {

TEST(Rounds, CasesTakeTurns) {
  std::vector<std::string> shown;
  std::vector<size_t> order;
  Rounds rounds(1, [&](const std::string& line) { shown.push_back(line); });
  const std::vector<Timing> timings = rounds.measure("cases", 2, 1, 3, [&](size_t i) {
    order.push_back(i);
    const size_t round = (order.size() - 1) / 2;  // 0 is the one to warm up
    return i == 0 ? 0.001 * static_cast<double>(round) : 1.0;
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(shown.size(), 4u);
  EXPECT_EQ(shown.back(), "cases, round 3 of 3");
  ASSERT_EQ(timings.size(), 2u);
  EXPECT_DOUBLE_EQ(timings[0].fastest_ms, 1) << "the warm-up does not count";
  EXPECT_DOUBLE_EQ(timings[0].median_ms, 2);
  EXPECT_DOUBLE_EQ(timings[0].slowest_ms, 3);
  EXPECT_DOUBLE_EQ(timings[1].median_ms, 1000);
  const Yardsticks yardsticks = rounds.yardsticks();
  EXPECT_GT(yardsticks.fma_peak_gflops, 0);
  EXPECT_GT(yardsticks.sgemm_gflops, 0);
  EXPECT_EQ(yardsticks.threads, 1);
}

TEST(Rounds, AreToldInWordsAndNumbers) {
  const Timing timing = summarise({0.004, 0.002, 0.003, 0.001, 0.005});
  EXPECT_EQ(timing.quartiles(1), "2.0-4.0");
  EXPECT_DOUBLE_EQ(timing.per_second(6), 2000);
  EXPECT_DOUBLE_EQ(timing.gflops(6e9), 2000);
  nlohmann::ordered_json row = {{"case", "x"}};
  add_timing(row, timing);
  EXPECT_EQ(row.dump(), R"({"case":"x","median_ms":3.0,"lower_quartile_ms":2.0,"upper_quartile_ms":4.0,"fastest_ms":1.0})");
  const Yardsticks yardsticks{200, 150, 2, "AVX2", "CPU"};
  EXPECT_DOUBLE_EQ(yardsticks.percent_of_peak(50), 25);
  EXPECT_EQ(yardsticks.heading(", D 64"), "CPU, AVX2, 2 threads, float32, D 64: FMA peak 200 GFLOP/s, oneDNN sgemm 150 (75% of it)\n");
  EXPECT_EQ(to_json(yardsticks).dump(), R"({"fma_peak_gflops":200.0,"sgemm_gflops":150.0,"threads":2,"simd":"AVX2","cpu":"CPU"})");
}

}  // namespace
}  // namespace hinge::bench
