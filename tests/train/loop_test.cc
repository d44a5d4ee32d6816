// The loop of a run, with what is trained made up.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>

#include "../distributed/ranks.h"
#include "../support/errors.h"
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

// Learns; a process of the kind that `drifts` has another bit in its weights from the third step on.
class Drifting : public Failing {
 public:
  explicit Drifting(bool drifts) : drifts_(drifts) {}
  void begin_step(int64_t step) override {
    const at::NoGradGuard guard;
    float* first = parameters().all()[0].value.data_ptr<float>();
    if (drifts_ && step == 2) *first = std::nextafter(*first, 1e9F);
  }
  ShardOutcome shard(int64_t, uint64_t) override {
    at::Tensor loss = at::zeros({});
    for (const nn::Parameter& parameter : parameters().all()) loss = loss + parameter.value.square().sum();
    return {.loss = 1, .items = 1, .gradients = gradients_of(parameters(), {loss}, {0.5})};
  }
  std::optional<EvaluationOutcome> evaluate(const std::atomic<bool>&, const EvaluationProgress&) override {
    return EvaluationOutcome{1, {{"score", 1}}, "good", {}};
  }

 private:
  const bool drifts_;
};

TEST_F(LoopTest, AProcessWithOtherWeightsIsNamedBeforeACheckpoint) {
  for (const bool drifts : {false, true}) {
    const std::string run = path(drifts ? "drifts" : "same");
    const distributed::HeldPort port;
    const std::vector<std::string> errors = distributed::run_ranks(2, [&](int rank) {
      distributed::ProcessGroup group(distributed::environment_of(rank, 2, port), "test");
      Drifting trained(drifts && rank == 1);
      const std::atomic<bool> stop = false;
      std::atomic<bool> unused = false;
      LoopSettings settings;
      settings.run.shards = 2, settings.run.workers = settings.run.threads = 1;
      settings.optim.steps = 4, settings.eval_steps = 100, settings.checkpoint_steps = 2;
      std::optional<RunFolder> folder;
      if (rank == 0) folder.emplace(RunFolder::create(run, ""));
      run_loop(trained, settings, std::move(folder), std::nullopt, stop, stopping_when("nothing", unused), &group);
      group.leave();
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(support::mentions(error, {"the weights of rank 1 are not those of the other rank"}), drifts) << error;
      EXPECT_EQ(error.empty(), !drifts) << error;
    }
    EXPECT_EQ(latest_checkpoint(run).found->step, drifts ? 2 : 4);
    EXPECT_EQ(read_status(run).state, drifts ? "failed" : "done");
  }
}

}  // namespace
}  // namespace hinge::train
