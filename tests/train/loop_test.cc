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
  void begin(int64_t, const ShardOwners&) override {}
  void begin_step(int64_t) override {}
  ShardOutcome shard(int64_t, uint64_t) override { TORCH_CHECK(false, "the step has a problem"); }
  std::string first_not_finite(int64_t, uint64_t) override { return ""; }
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
  LoopSettings settings;
  settings.run.shards = settings.run.workers = 2, settings.run.threads = 1;
  EXPECT_THROW(run_loop(failing, settings, RunFolder::create(path("run"), ""), std::nullopt, stop, stopping_when("nothing", unused)),
               c10::Error);
  EXPECT_EQ(read_status(path("run")).message, "the step has a problem");
}

}  // namespace
}  // namespace hinge::train
