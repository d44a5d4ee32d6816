// The loop of a run, with what is trained made up.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "../support/temporary_folder.h"
#include "runs.h"
#include "small_model.h"
#include "train/trainer.h"

namespace hinge::train {
namespace {

class LoopTest : public support::TemporaryFolderTest {};

// Fails as LibTorch does.
class Failing : public Trainable {
 public:
  const nn::Parameters& parameters() const override { return small_.parameters; }
  std::string items() const override { return "things"; }
  std::string score_name() const override { return "score"; }
  std::string score_text(double) const override { return ""; }
  void begin(int64_t) override {}
  std::optional<StepOutcome> step(const std::atomic<bool>&) override { TORCH_CHECK(false, "the step has a problem"); }
  std::string first_not_finite() override { return ""; }
  Values metrics(const Sums&, int64_t) const override { return {}; }
  std::optional<EvaluationOutcome> evaluate(const std::atomic<bool>&, const EvaluationProgress&) override { return {}; }
  nlohmann::json checkpoint_state() const override { return {}; }
  double waited_seconds() const override { return 0; }

 private:
  Small small_;
};

TEST_F(LoopTest, AStatusHoldsNoStackTrace) {
  Failing failing;
  const std::atomic<bool> stop = false;
  std::atomic<bool> unused = false;
  EXPECT_THROW(run_loop(failing, {}, RunFolder::create(path("run"), ""), std::nullopt, stop, stopping_when("nothing", unused)), c10::Error);
  EXPECT_EQ(read_status(path("run")).message, "the step has a problem");
}

}  // namespace
}  // namespace hinge::train
