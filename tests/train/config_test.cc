// The keys that every task's config has: what they make of epochs, and what a change of one takes back.
#include "train/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "../support/errors.h"

namespace hinge::train {
namespace {

using support::error_of;
using support::mentions;

int64_t ten_a_epoch(double epochs, int64_t most) { return std::min(most, static_cast<int64_t>(std::llround(10 * std::min(epochs, 1e15)))); }

TEST(TrainConfig, EpochsBecomeSteps) {
  OptimConfig optim;
  RunConfig run;
  optim.epochs = 2.5, run.eval_every = 0.5, run.checkpoint_every = 1e300, run.seed = 7;
  resolve_steps(optim, ten_a_epoch);
  EXPECT_EQ(optim.steps, 25);
  LoopSettings settings = loop_settings(optim, run, {}, ten_a_epoch);
  EXPECT_EQ(settings.steps(), 25);
  EXPECT_EQ(settings.eval_steps, 5);
  EXPECT_EQ(settings.checkpoint_steps, 25) << "what is longer than the run is its end";
  EXPECT_EQ(settings.run.seed, 7);
  run.eval_every = 1e-9;
  EXPECT_EQ(loop_settings(optim, run, {}, ten_a_epoch).eval_steps, 1);
  optim.steps = 3;  // given, it counts
  resolve_steps(optim, ten_a_epoch);
  EXPECT_EQ(optim.steps, 3);
  optim.steps.reset(), optim.epochs = 0.01;
  EXPECT_TRUE(mentions(error_of([&] { resolve_steps(optim, ten_a_epoch); }), {"no step to train", "optim.epochs", "optim.batch"}));
}

TEST(TrainConfig, ValuesThatCannotBeTrainedWithAreNamed) {
  const double nan = std::nan("");
  const auto message = [](const auto& change) {
    OptimConfig optim;
    RunConfig run;
    change(optim, run);
    return error_of([&] { check(optim, run); });
  };
  EXPECT_EQ(message([](OptimConfig&, RunConfig&) {}), "");
  const std::vector<std::pair<std::string, std::function<void(OptimConfig&, RunConfig&)>>> wrong = {
      {"optim.lr", [&](OptimConfig& o, RunConfig&) { o.lr = nan; }},
      {"optim.lr", [](OptimConfig& o, RunConfig&) { o.lr = 0; }},
      {"optim.beta1", [](OptimConfig& o, RunConfig&) { o.beta1 = 1; }},
      {"optim.beta2", [](OptimConfig& o, RunConfig&) { o.beta2 = -0.1; }},
      {"optim.eps", [](OptimConfig& o, RunConfig&) { o.eps = 0; }},
      {"optim.weight_decay", [](OptimConfig& o, RunConfig&) { o.weight_decay = 1; }},
      {"optim.clip", [](OptimConfig& o, RunConfig&) { o.clip = 0; }},
      {"optim.batch must be at least 1, got 0", [](OptimConfig& o, RunConfig&) { o.batch = 0; }},
      {"train.shards must be a power of two, or 0 for the default, got 3", [](OptimConfig&, RunConfig& r) { r.shards = 3; }},
      {"train.workers must be a power of two, or 0 for the default, got -2", [](OptimConfig&, RunConfig& r) { r.workers = -2; }},
      {"train.workers 4 is more than train.shards 2", [](OptimConfig&, RunConfig& r) { r.shards = 2, r.workers = 4; }},
      {"train.shards 4 is more than optim.batch 3", [](OptimConfig& o, RunConfig& r) { o.batch = 3, r.shards = 4; }},
      {"train.threads cannot be negative, got -1", [](OptimConfig&, RunConfig& r) { r.threads = -1; }},
      {"optim.epochs", [](OptimConfig& o, RunConfig&) { o.epochs = 0; }},
      {"optim.epochs", [](OptimConfig& o, RunConfig&) { o.epochs = 10001; }},
      {"no step to train: optim.steps", [](OptimConfig& o, RunConfig&) { o.steps = 0; }},
      {"optim.warmup_steps", [](OptimConfig& o, RunConfig&) { o.warmup_steps = -1; }},
      {"train.eval_every", [&](OptimConfig&, RunConfig& r) { r.eval_every = nan; }},
      {"train.checkpoint_every", [](OptimConfig&, RunConfig& r) { r.checkpoint_every = 0; }},
      {"train.keep", [](OptimConfig&, RunConfig& r) { r.keep = 0; }},
      {"train.log_steps", [](OptimConfig&, RunConfig& r) { r.log_steps = 0; }},
      {"train.average", [](OptimConfig&, RunConfig& r) { r.average = -1; }},
  };
  for (const auto& [key, change] : wrong) EXPECT_TRUE(mentions(message(change), {key}));
}

// A task's config: extends both structs.
struct Made {
  struct Optim : OptimConfig {
    Optim() : OptimConfig({.lr = 0.5, .schedule = Schedule::linear}) {}
    double extra = 2;
    template <class V> void visit(V& v) {
      OptimConfig::visit(v, "things of a step");
      v("extra", extra, "one more");
    }
  };
  Optim optim = {};
  RunConfig train = {};
  template <class V> void visit(V& v) {
    v("optim", optim, "the optimiser");
    v("train", train, "the run");
  }
};

TEST(TrainConfig, TasksExtendIt) {
  Made made;
  support::read_config_text(made, "[optim]\nbatch = 7\nschedule = \"inverse_sqrt\"\nextra = 3\n[train]\naverage = 4\n", "a.toml");
  EXPECT_EQ(made.optim.lr, 0.5);
  EXPECT_EQ(made.optim.batch, 7);
  EXPECT_EQ(made.optim.schedule, Schedule::inverse_sqrt);
  EXPECT_EQ(made.optim.extra, 3);
  EXPECT_EQ(made.train.average, 4);
  EXPECT_TRUE(mentions(support::describe_config(made), {"optim.batch = 7", "things of a step", "cosine, linear, constant, inverse_sqrt"}));
}

TEST(TrainConfig, OtherEpochsTakeTheStepsBack) {
  Made made;
  made.optim.steps = 100;
  change_config(made, {"optim.lr=1"});
  EXPECT_EQ(made.optim.lr, 1);
  EXPECT_EQ(made.optim.steps, 100);
  change_config(made, {" optim.epochs = 3"});
  EXPECT_EQ(made.optim.epochs, 3);
  EXPECT_FALSE(made.optim.steps);
  change_config(made, {"optim.steps=9", "optim.epochs=3"});
  EXPECT_EQ(made.optim.steps, 9) << "whichever comes first";
}

}  // namespace
}  // namespace hinge::train
