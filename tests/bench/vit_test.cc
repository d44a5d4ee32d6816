// What is told of a measured vision transformer.
#include "bench/vit.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hinge::bench {
namespace {

TEST(VitBench, EveryRowHasTheMemoryOfItsModel) {
  VitPlan plan;
  plan.models = {"28px/2"}, plan.attentions = {"relu-vit"}, plan.gates = {"none"}, plan.passes = {"infer"}, plan.rounds = 1;
  VitReport report = run(plan, [](const std::string&) {});
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_GT(report.rows[0].memory_bytes, int64_t{10} << 20);
  EXPECT_EQ(report.memory_bytes, report.rows[0].memory_bytes);

  report.rows.push_back(report.rows[0]);
  report.rows[0].memory_bytes = int64_t{321} << 20, report.rows[1].memory_bytes = int64_t{4567} << 20;
  const nlohmann::ordered_json json = to_json(report);
  EXPECT_EQ(json.at("results")[0].at("memory_bytes"), int64_t{321} << 20);
  EXPECT_EQ(json.at("results")[1].at("memory_bytes"), int64_t{4567} << 20);
  const std::string text = table(report);
  EXPECT_NE(text.find("memory MB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("      321\n"), std::string::npos) << text;
  EXPECT_NE(text.find("     4567\n"), std::string::npos) << text;
}

TEST(VitBench, GatesAreCheckedAndTold) {
  VitPlan plan;
  plan.models = {"28px/2"}, plan.attentions = {"relu-vit", "softmax"}, plan.gates = {"linear", "sigmoid"}, plan.passes = {"infer"};
  plan.warm_up = 0, plan.rounds = 1;
  const VitReport report = run(plan, [](const std::string&) {});  // throws if the logits are not those of the plain model
  ASSERT_EQ(report.rows.size(), 4u);
  EXPECT_EQ(report.rows[2].attention, "softmax");
  EXPECT_EQ(report.rows[2].gate, "linear");
  EXPECT_EQ(to_json(report).at("results")[3].at("gate"), "sigmoid");
  EXPECT_NE(table(report).find("sigmoid"), std::string::npos);
}

}  // namespace
}  // namespace hinge::bench
