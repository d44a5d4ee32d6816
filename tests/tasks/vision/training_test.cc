// Trainings of vision transformers: they learn, repeat, stop and go on bit for bit.
#include "tasks/vision/training.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "../../support/errors.h"
#include "../../support/temporary_folder.h"
#include "../../train/runs.h"
#include "data/codec.h"
#include "support/config.h"
#include "support/safetensors.h"
#include "tasks/vision/attention_numbers.h"
#include "tasks/vision/evaluation.h"
#include "tasks/vision/learned_attention.h"
#include "tasks/vision/model_input.h"
#include "tasks/vision/trained_model.h"
#include "tiny.h"
#include "train/weights.h"

namespace hinge::vision {
namespace {

using support::error_of;
using support::mentions;
using train::best_checkpoint;
using train::checkpoint_of;
using train::CheckpointSearch;
using train::config_path;
using train::expect_same_metrics;
using train::last_checkpoint_bytes;
using train::latest_checkpoint;
using train::metrics_path;
using train::read_status;
using train::RunFolder;
using train::RunStatus;
using train::save_weights;
using train::stopping_at;
using train::stopping_when;
using train::TrainResult;
using train::Which;

class TrainTest : public support::TemporaryFolderTest {
 protected:
  TrainResult run(const Config& config, const std::string& name, int64_t stop_after = -1) const {
    std::atomic<bool> stop = false;
    return train(config, path(name), stop, stopping_at(stop_after, *config.optim.steps, stop));
  }
  TrainResult resume(const std::string& name, int64_t stop_after, int64_t steps, const std::vector<std::string>& changes = {}) const {
    std::atomic<bool> stop = false;
    return vision::resume(path(name), changes, stop, stopping_at(stop_after, steps, stop));
  }
};

// Does something in the count-th call of an operator, and counts all of its calls in this thread.
class InCall {
 public:
  InCall(const char* name, int count, std::function<void()> action) : action_(std::move(action)), name_(name), count_(count) {
    current_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&called).scopes({at::RecordScope::FUNCTION}));
  }
  ~InCall() { at::removeCallback(handle_); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  int calls() const { return calls_; }

 private:
  static std::unique_ptr<at::ObserverContext> called(const at::RecordFunction& function) {
    if (function.name() == current_->name_ && ++current_->calls_ == current_->count_) current_->action_();
    return nullptr;
  }

  static inline InCall* current_ = nullptr;
  std::function<void()> action_;
  std::string name_;
  int count_, calls_ = 0;
  at::CallbackHandle handle_;
};

// ---- runs

TEST_F(TrainTest, LearnsWhatCanBeLearned) {
  Config config = tiny(200);
  config.data.synthetic_count = 256, config.data.mixup = 0, config.data.train_pp = config.data.eval_pp;
  config.optim.lr = 1e-2;
  const TrainResult result = run(config, "run");
  EXPECT_TRUE(result.finished);
  EXPECT_GE(result.score, 0.95) << "guessing would get 0.25";
  EXPECT_EQ(result.step, 200);
  const RunStatus status = read_status(path("run"));
  EXPECT_EQ(status.state, "done");
  EXPECT_EQ(status.best, result.best);
  const TrainedModel loaded = load(path("run"), Which::latest);
  EXPECT_EQ(loaded.classes.size(), 4u);
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(loaded.config.data, "test"));
  EXPECT_EQ(evaluate(*loaded.model, images, data::Pipeline(loaded.config.data.eval_pp), {}).accuracy(), result.score);
}

TEST_F(TrainTest, TheSeedDecidesEveryBit) {
  Config config = tiny(12);
  run(config, "a");
  config.data.threads = 3;  // more threads that load do not change what is loaded
  run(config, "b");
  config.train.seed = 1;
  run(config, "c");
  EXPECT_EQ(last_checkpoint_bytes(path("a"), 12), last_checkpoint_bytes(path("b"), 12));
  EXPECT_NE(last_checkpoint_bytes(path("a"), 12), last_checkpoint_bytes(path("c"), 12));
  expect_same_metrics(path("a"), path("b"));
}

TEST_F(TrainTest, StoppingAndGoingOnChangesNoBit) {
  Config config = tiny(24);
  config.train.shards = 2;
  run(config, "whole");
  for (const bool again : {false, true}) {
    config.train.gradient_checkpointing = again;
    const std::string name = again ? "checkpointed" : "parts";
    EXPECT_FALSE(run(config, name, 7).finished);
    EXPECT_EQ(read_status(path(name)).state, "stopped");
    EXPECT_EQ(resume(name, 8, 24).step, 8);  // a step with a checkpoint and an evaluation, which is cut off
    EXPECT_FALSE(checkpoint_of(path(name), 8).score);
    if (again) {  // killed after the evaluation was made up for, and before the next checkpoint
      const std::string lines = content("whole/metrics.jsonl");
      put(name + "/metrics.jsonl", lines.substr(0, lines.find('\n', lines.find("eval/")) + 1));
      EXPECT_EQ(support::read_metrics(metrics_path(path(name))).back().step, 8);
    }
    EXPECT_EQ(resume(name, 17, 24).step, 17);
    EXPECT_FALSE(resume(name, 24, 24).finished);  // all steps are done, their evaluation is not
    EXPECT_EQ(read_status(path(name)).state, "stopped");
    const TrainResult last = resume(name, -1, 24);
    EXPECT_TRUE(last.finished);
    EXPECT_EQ(last_checkpoint_bytes(path("whole"), 24), last_checkpoint_bytes(path(name), 24));
    expect_same_metrics(path("whole"), path(name));
    EXPECT_EQ(read_status(path("whole")).best, read_status(path(name)).best);
    EXPECT_EQ(read_status(path("whole")).best_step, read_status(path(name)).best_step);
    // Going on with a run that is done changes nothing.
    const RunStatus before = read_status(path(name));
    EXPECT_TRUE(resume(name, -1, 24).finished);
    EXPECT_EQ(read_status(path(name)).values.at("images_per_second"), before.values.at("images_per_second"));
    expect_same_metrics(path("whole"), path(name));
  }
}

// With convolutions, dropout, mixup and augmentation. The last bits tell whether anything depends on who computes what.
TEST_F(TrainTest, TheNumberOfWorkersChangesNoBit) {
  Config config = tiny(16);
  config.train.shards = 4, config.model.stem = models::Stem::conv;
  run(config, "one");
  for (const int64_t workers : {2, 4}) {
    config.train.workers = workers;
    const std::string name = std::to_string(workers);
    run(config, name);
    EXPECT_EQ(last_checkpoint_bytes(path("one"), 16), last_checkpoint_bytes(path(name), 16)) << workers << " workers";
    expect_same_metrics(path("one"), path(name));
  }
  // Each process with another number of workers.
  config.train.workers = 2;
  EXPECT_FALSE(run(config, "changing", 3).finished);
  EXPECT_FALSE(resume("changing", 7, 16, {"train.workers=4"}).finished);
  EXPECT_FALSE(resume("changing", 10, 16, {"train.workers=0"}).finished);
  EXPECT_TRUE(resume("changing", -1, 16, {"train.workers=1"}).finished);
  EXPECT_EQ(last_checkpoint_bytes(path("one"), 16), last_checkpoint_bytes(path("changing"), 16));
  expect_same_metrics(path("one"), path("changing"));
  config.train.gradient_checkpointing = true;  // backward passes within backward passes, side by side
  run(config, "checkpointed");
  EXPECT_EQ(last_checkpoint_bytes(path("one"), 16), last_checkpoint_bytes(path("checkpointed"), 16));
  config.train.gradient_checkpointing = false;
  // The shards do change them.
  config.train.shards = 2;
  run(config, "halves");
  EXPECT_NE(last_checkpoint_bytes(path("one"), 16), last_checkpoint_bytes(path("halves"), 16));
}

TEST_F(TrainTest, ShardsStayAndOtherThreadsAreTold) {
  Config config = tiny(8);
  config.train.shards = 0, config.train.workers = 2;
  run(config, "run", 4);
  EXPECT_EQ(train::read_run_config<Config>(path("run")).train.shards, 2) << "one for each worker, stored";
  EXPECT_TRUE(mentions(error_of([&] { resume("run", -1, 8, {"train.shards=4"}); }), {"train.shards=4", "keeps its shards"}));
  EXPECT_TRUE(mentions(error_of([&] { resume("run", -1, 8, {"train.workers=4"}); }), {"train.workers 4", "train.shards 2"}));
  const auto said_by_resuming = [&](const std::string& change) {
    std::string said;
    std::atomic<bool> stop = true;
    support::ProgressOutput output = stopping_when("nothing", stop);
    output.write = [&](std::string_view text) { said += text; };
    vision::resume(path("run"), {change}, stop, output);
    return said;
  };
  EXPECT_EQ(said_by_resuming("train.workers=1").find("threads now"), std::string::npos);
  EXPECT_TRUE(mentions(said_by_resuming("train.threads=2"), {"each worker has 2 threads now instead of 1", "train.threads=1"}));
}

// A file that cannot be read ends the step of all workers.
TEST_F(TrainTest, AnErrorInOneWorkerEndsTheRun) {
  write_tiny_images(path("images/train/a"), 24);
  write_tiny_images(path("images/train/b"), 24);
  write_tiny_images(path("images/val/a"), 4);
  write_tiny_images(path("images/val/b"), 4);
  Config config = tiny_of_files(path("images"), "val", 40);
  config.train.shards = 8, config.train.workers = 4;
  put("images/train/b/17.png", "no picture");
  EXPECT_TRUE(mentions(error_of([&] { run(config, "run"); }), {"17.png", "hinge data check"}));
  EXPECT_EQ(read_status(path("run")).state, "failed");
}

TEST_F(TrainTest, AStopRightAfterResumingKeepsTheScore) {
  std::atomic<bool> stop = false;
  EXPECT_EQ(train(tiny(16), path("run"), stop, stopping_when("step 8: accuracy", stop)).step, 8);
  ASSERT_TRUE(latest_checkpoint(path("run")).found->score.has_value());
  const double score = *latest_checkpoint(path("run")).found->score;
  EXPECT_EQ(vision::resume(path("run"), {}, stop, stopping_at(-1, 16, stop)).step, 8);
  EXPECT_EQ(latest_checkpoint(path("run")).found->score, score);
}

// The flag is looked at before each shard: the step is dropped, and made anew later.
TEST_F(TrainTest, AStopWithinAStepDropsIt) {
  Config config = tiny(6);
  config.train.shards = 4;
  run(config, "whole");
  std::atomic<bool> stop = false;
  {
    const InCall second_of_step_3("aten::argmax", 4 + 4 + 2, [&] { stop = true; });
    EXPECT_EQ(train(config, path("parts"), stop, stopping_when("nothing", stop)).step, 2);
    EXPECT_EQ(second_of_step_3.calls(), 10) << "the other parts of the step are not worked off";
  }
  EXPECT_TRUE(resume("parts", -1, 6).finished);
  EXPECT_EQ(last_checkpoint_bytes(path("whole"), 6), last_checkpoint_bytes(path("parts"), 6));
  expect_same_metrics(path("whole"), path("parts"));
}

TEST_F(TrainTest, AStopWithinAnEvaluationDropsIt) {
  Config config = tiny(8);  // 64 images to evaluate, in 4 batches
  run(config, "whole");
  std::atomic<bool> stop = false;
  {
    const InCall second("aten::topk", 2, [&] { stop = true; });
    EXPECT_FALSE(train(config, path("parts"), stop, stopping_when("nothing", stop)).finished);
    EXPECT_EQ(second.calls(), 2);
  }
  EXPECT_TRUE(resume("parts", -1, 8).finished);
  expect_same_metrics(path("whole"), path("parts"));
}

// The learning rate grows until the model forgets all it knew.
TEST_F(TrainTest, TheBestModelIsKeptWhereverItWas) {
  Config config = tiny(16);
  config.optim.lr = 1, config.optim.warmup_steps = 16, config.train.keep = 1;
  config.train.eval_every = 0.25, config.train.checkpoint_every = 100;  // each step, and the last
  run(config, "whole");
  const RunStatus status = read_status(path("whole"));
  ASSERT_LT(*status.best_step, 15);
  EXPECT_EQ(best_checkpoint(path("whole")).found->step, status.best_step);
  const TrainedModel best = load(path("whole"), Which::best);
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(config.data, "test"));
  EXPECT_EQ(evaluate(*best.model, images, data::Pipeline(config.data.eval_pp), {}).accuracy(), status.best);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("whole/checkpoints")), std::filesystem::directory_iterator()), 2);

  EXPECT_FALSE(run(config, "parts", *status.best_step).finished);
  EXPECT_EQ(resume("parts", *status.best_step + 1, 16).step, *status.best_step + 1);
  EXPECT_TRUE(resume("parts", -1, 16).finished);
  for (const int64_t step : {*status.best_step, int64_t{16}})
    EXPECT_EQ(last_checkpoint_bytes(path("whole"), step), last_checkpoint_bytes(path("parts"), step));
  expect_same_metrics(path("whole"), path("parts"));
}

TEST_F(TrainTest, AveragesTheLastCheckpoints) {
  Config config = tiny(12);
  config.train.keep = 20, config.train.checkpoint_every = 0.5, config.train.average = 3;  // steps 8, 10 and 12
  run(config, "run");
  const TrainedModel mean = load(path("run"), Which::averaged), last = load(path("run"), Which::latest);
  EXPECT_TRUE(mean.weights.averaged);
  EXPECT_FALSE(last.weights.averaged);
  for (const nn::Parameter& parameter : mean.model->parameters().all()) {
    at::Tensor sum = at::zeros(parameter.value.sizes(), at::kDouble);
    for (const int64_t step : {8, 10, 12}) {
      const support::SafetensorsFile weights(checkpoint_of(path("run"), step).file(train::kWeights));
      sum += at::from_blob(const_cast<void*>(weights.at(parameter.name).data), parameter.value.sizes(), at::kFloat);
    }
    EXPECT_TRUE(at::equal((sum / 3).to(at::kFloat), parameter.value)) << parameter.name;
  }
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(config.data, "test"));
  const double accuracy = evaluate(*mean.model, images, data::Pipeline(config.data.eval_pp), {}).accuracy();
  EXPECT_EQ(accuracy, read_status(path("run")).values.at("averaged_accuracy"));
  EXPECT_EQ(load(path("run"), Which::best).weights.averaged, accuracy > *best_checkpoint(path("run")).found->score);
  config.train.average = 0;
  run(config, "none");
  EXPECT_TRUE(mentions(error_of([&] { load(path("none"), Which::averaged); }), {path("none"), "no averaged weights", "train.average"}));
}

// A checkpoint that the disk does not give is no damaged one: it may be back when the run goes on.
TEST_F(TrainTest, TheMeanWaitsForACheckpointThatCannotBeRead) {
  Config config = tiny(12);
  config.train.checkpoint_every = 0.5, config.train.average = 3;  // steps 8, 10 and 12
  run(config, "whole");
  run(config, "run", 11);
  const std::string weights = path("run/checkpoints/step-00000008/weights.safetensors");
  std::filesystem::rename(weights, path("aside"));
  std::filesystem::create_symlink(weights, weights);  // "Too many levels of symbolic links"
  EXPECT_TRUE(mentions(error_of([&] { resume("run", -1, 12); }), {weights, "symbolic links"}));
  EXPECT_EQ(read_status(path("run")).state, "failed");
  std::filesystem::remove(weights);
  std::filesystem::rename(path("aside"), weights);
  EXPECT_TRUE(resume("run", -1, 12).finished);
  EXPECT_EQ(last_checkpoint_bytes(path("whole"), 12), last_checkpoint_bytes(path("run"), 12));
  expect_same_metrics(path("whole"), path("run"));
}

TEST_F(TrainTest, TheLengthRuleIsThatOfTheConfig) {
  for (const std::string& rule : length_rule_names()) {
    Config config = tiny(1);
    support::override_config(config, "model.attention.length=" + rule);
    run(config, rule);
    EXPECT_EQ(latest_checkpoint(path(rule)).found->state["length_rule"], rule);
    EXPECT_EQ(load(path(rule), Which::latest).config.model.attention.length, rule);
  }
  std::string text = content("none/config.toml");
  text.replace(text.find("length = \"none\""), 15, "length = \"keys\"");
  put("none/config.toml", text);
  EXPECT_TRUE(mentions(error_of([&] { load(path("none"), Which::latest); }), {path("none"), "length rule none", "now gives keys"}));
  EXPECT_TRUE(mentions(error_of([&] { resume("none", -1, 1); }), {path("none"), "length rule none", "now gives keys"}));
  // The same for the first blocks.
  Config config = tiny(1);
  config.model.attention.first.blocks = 1, config.model.attention.first.length = "visible";
  run(config, "first");
  text = content("first/config.toml");
  text.replace(text.find("length = \"visible\""), 18, "length = \"none\"");
  put("first/config.toml", text);
  EXPECT_TRUE(mentions(error_of([&] { load(path("first"), Which::latest); }), {path("first"), "length rule visible", "now gives none"}));
}

// The numbers that are learned, in the metrics of each evaluation and in those of the run.
TEST_F(TrainTest, LearnedNumbersOfAttentionAreInTheMetrics) {
  Config config = tiny(8);
  config.model.depth = 2, config.optim.warmup_steps = 0;
  config.model.attention.alpha = 0.5, config.model.attention.learn_alpha = "head", config.model.attention.learn_gain = "layer";
  config.model.attention.learn_bias = "model";
  run(config, "run");
  const TrainedModel trained = load(path("run"), Which::latest);
  std::map<std::string, double> learned;
  for (const auto& [name, value] : learned_attention(*trained.model)) learned[name] = value;
  std::vector<std::string> names;
  for (const auto& [name, value] : learned) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"alpha", "alpha/0", "alpha/0/max", "alpha/0/min", "alpha/1", "alpha/1/max", "alpha/1/min",
                                             "bias", "gain", "gain/0", "gain/1"}));
  EXPECT_NE(learned["alpha/0"], 0.5) << "nothing was learned";
  EXPECT_NE(learned["bias"], 0) << "nothing was learned";
  EXPECT_LT(learned["alpha/1/min"], learned["alpha/1/max"]);
  EXPECT_NEAR(learned["alpha"], (learned["alpha/0"] + learned["alpha/1"]) / 2, 1e-9);
  const support::MetricRecord last = support::read_metrics(metrics_path(path("run"))).back();
  for (const auto& [name, value] : learned) EXPECT_EQ(last.number("eval/" + name), value) << name;
}

TEST_F(TrainTest, StatisticsOfAttentionAreInTheMetricsIfAskedFor) {
  Config config = tiny(8);
  config.model.depth = 2;
  run(config, "without");
  EXPECT_TRUE(std::isnan(support::read_metrics(metrics_path(path("without"))).back().number("eval/mass/0")));
  config.train.statistics = true;
  run(config, "with");
  EXPECT_EQ(last_checkpoint_bytes(path("with"), 8), last_checkpoint_bytes(path("without"), 8)) << "looking changes nothing";
  const TrainedModel trained = load(path("with"), Which::latest);
  // All images of the evaluation, which are 64.
  const auto images = data::open_images(source_of(config.data, config.data.eval));
  at::Tensor pixels = at::empty({64, 8, 8, 1});
  for (int64_t i = 0; i < 64; ++i) pixels[i] = model_input(trained.config, images->load(i)).pixels[0];
  const support::MetricRecord last = support::read_metrics(metrics_path(path("with"))).back();
  for (const auto& [name, value] : attention_statistics(*trained.model, pixels)) EXPECT_EQ(last.number("eval/" + name), value) << name;
  EXPECT_GT(last.number("eval/mass/1"), 0);
  EXPECT_EQ(read_status(path("with")).values.count("mass/1"), 0U) << "too many for a status";
}

// Positions are resampled or computed anew, the other weights stay, and what needs other weights is refused.
TEST_F(TrainTest, ATrainedModelCanTakeOtherImageSizes) {
  for (const nn::Position position : {nn::Position::learned, nn::Position::sinusoidal}) {
    Config config = tiny(2);
    config.model.position = position, config.model.stem = models::Stem::conv;
    const std::string name = support::config_word(position);
    run(config, name);
    const at::NoGradGuard guard;
    TrainedModel trained = load(path(name), Which::latest);
    const models::Vit before(trained.config.model, 7);
    train::load_weights(trained.weights.path(), before.parameters());
    change_model(trained, {"model.image_size=16", "model.attention.length=fixed", "model.attention.length_n=4"});
    EXPECT_EQ(trained.config.model.tokens(), 16);
    EXPECT_EQ(trained.model->config().attention.length_n, 4);
    for (const nn::Parameter& parameter : before.parameters().all()) {
      const at::Tensor now = trained.model->parameters().find(parameter.name)->value;
      const bool positions = parameter.name == "pos_embed";
      EXPECT_TRUE(at::equal(now, positions ? models::resample_position(parameter.value, 4) : parameter.value)) << parameter.name;
    }
    Config large = trained.config;
    large.model.image_size = 16;
    const models::Vit same(large.model, 1);  // sinusoidal positions are those of a model of this size
    for (const nn::Parameter& parameter : same.parameters().all())
      parameter.value.copy_(trained.model->parameters().find(parameter.name)->value);
    const at::Tensor images = at::sin(at::arange(512, at::kFloat)).view({2, 16, 16, 1});
    EXPECT_TRUE(at::equal(same.forward(images), trained.model->forward(images)));
  }
  TrainedModel trained = load(path("learned"), Which::latest);
  for (const char* change : {"model.patch=2", "model.depth=2", "model.position=sinusoidal", "model.attention.qk_norm=false"})
    EXPECT_TRUE(mentions(error_of([&] { change_model(trained, {change}); }), {std::string("--set ") + change, "trained weights"}))
        << change;
  EXPECT_TRUE(mentions(error_of([&] { change_model(trained, {"model.image_sise=16"}); }), {"model.image_size"}));
}

TEST_F(TrainTest, LostCheckpointsAreNotReplacedByANewBeginning) {
  run(tiny(12), "run", 10);
  const std::string metrics = content("run/metrics.jsonl");
  for (const auto& entry : std::filesystem::directory_iterator(path("run/checkpoints")))
    std::filesystem::resize_file(entry.path() / "weights.safetensors", 100);
  EXPECT_TRUE(
      mentions(error_of([&] { resume("run", -1, 12); }), {"none of the checkpoints", path("run"), "weights.safetensors", "100 bytes"}));
  std::filesystem::remove_all(path("run/checkpoints"));
  EXPECT_TRUE(mentions(error_of([&] { resume("run", -1, 12); }), {path("run"), "stopped at step 10", "checkpoints are gone"}));
  RunFolder::open(path("run")).write_status({.state = "running", .step = 8, .steps = 12});  // killed
  EXPECT_TRUE(mentions(error_of([&] { resume("run", -1, 12); }), {path("run"), "running at step 8", "checkpoints are gone"}));
  EXPECT_EQ(content("run/metrics.jsonl"), metrics);
  // Killed before its first checkpoint, a run begins anew.
  RunFolder::open(path("run")).write_status({.state = "running", .step = 0, .steps = 12});
  EXPECT_TRUE(resume("run", -1, 12).finished);
}

TEST_F(TrainTest, GoesOnAfterAnEvaluationThatIsNoNumber) {
  run(tiny(12), "run", 9);
  const std::string file = "run/checkpoints/step-00000009/checkpoint.json";
  nlohmann::json description = nlohmann::json::parse(content(file));
  description.erase("crc32c");  // as earlier versions wrote it
  nlohmann::json& state = description["state"];
  ASSERT_TRUE(state.contains("score") && state.contains("best") && state["evaluated"].contains("loss"));
  state["score"] = state["best"] = state["evaluated"]["loss"] = nullptr;
  put(file, description.dump());
  EXPECT_TRUE(resume("run", -1, 12).finished);
  EXPECT_EQ(read_status(path("run")).best_step, 12) << "a number is better than none";
}

TEST_F(TrainTest, GoesOnWithTheClassesItHas) {
  run(tiny(8), "run", 4);
  const std::string file = "run/checkpoints/step-00000004/checkpoint.json";
  nlohmann::json description = nlohmann::json::parse(content(file));
  description.erase("crc32c");
  const auto store = [&](const std::vector<std::string>& classes) {
    description["state"]["classes"] = classes;
    put(file, description.dump());
  };
  store({"class 0", "class 1", "cat", "class 3"});
  EXPECT_TRUE(mentions(error_of([&] { resume("run", 5, 8); }), {path("run"), "other classes", "class 2 was 'cat' and is 'class 2'"}));
  store({"class 0", "class 1", "class 2"});
  EXPECT_TRUE(mentions(error_of([&] { resume("run", 5, 8); }), {path("run"), "3 classes", "4"}));
  store({"0", "1", "2", "3"});  // as imported weights may have them
  EXPECT_EQ(resume("run", 5, 8).step, 5);
  EXPECT_EQ(load(path("run"), Which::latest).classes, (std::vector<std::string>{"class 0", "class 1", "class 2", "class 3"}));
}

class FolderTest : public TrainTest {
 protected:
  void write_images(const std::string& name, int64_t count) const { write_tiny_images(path(name), count); }
  Config config(int64_t steps) const { return tiny_of_files(path("images"), "train", steps); }
};

// Whether a step or an evaluation meets it.
TEST_F(FolderTest, ABadFileLosesNoStep) {
  for (const char* split : {"train", "test"})
    for (const char* name : {"a", "b"}) write_images(std::string("images/") + split + "/" + name, 8);
  Config config = this->config(12);
  config.data.eval = "test", config.optim.batch = 4;                     // epochs of 4 steps
  config.train.eval_every = 0.75, config.train.checkpoint_every = 1000;  // after 3 steps; at the end
  run(config, "whole");
  for (const char* file : {"images/train/b/1.png", "images/test/b/1.png"}) {
    const std::string name = file == std::string("images/train/b/1.png") ? "bad-step" : "bad-evaluation", good = content(file);
    put(file, "no picture");
    const std::vector<std::string> advice = {path(file),
                                             "hinge data check --format folder --path " + path("images") + " names all bad files",
                                             "hinge train --resume " + path(name) + " --set data.on_error=skip continues without them"};
    const std::string message = error_of([&] { run(config, name); });
    EXPECT_TRUE(mentions(message, advice));
    EXPECT_EQ(read_status(path(name)).state, "failed");
    EXPECT_EQ(read_status(path(name)).message, message);
    const CheckpointSearch last = latest_checkpoint(path(name));
    ASSERT_TRUE(last.found) << name;
    EXPECT_GT(last.found->step, 0);
    EXPECT_EQ(last.found->step, read_status(path(name)).step);
    const double waiting = read_status(path(name)).values.at("waiting_share");
    EXPECT_TRUE(waiting >= 0 && waiting <= 1) << waiting;
    EXPECT_TRUE(mentions(error_of([&] { resume(name, -1, 12); }), advice));
    EXPECT_EQ(latest_checkpoint(path(name)).found->step, last.found->step);
    put(file, good);
    std::atomic<bool> stop = false;
    std::string said;
    EXPECT_TRUE(vision::resume(path(name), {}, stop, stopping_when("nothing", stop, &said)).finished);
    EXPECT_EQ(said.find(" 1/12 "), std::string::npos) << "steps that were done are not made again";
    EXPECT_EQ(last_checkpoint_bytes(path("whole"), 12), last_checkpoint_bytes(path(name), 12));
    expect_same_metrics(path("whole"), path(name));
  }
  put("images/test/a/0.png", "no picture");  // the first, which is looked at before the run begins
  EXPECT_TRUE(
      mentions(error_of([&] { run(config, "none"); }), {path("images/test/a/0.png"), "hinge data check", "--set data.on_error=skip"}));
  EXPECT_FALSE(std::filesystem::exists(path("none")));
}

TEST_F(FolderTest, SkippedFilesAreNamedAndCounted) {
  write_images("images/train/a", 8), write_images("images/train/b", 8);
  put("images/train/a/3.png", "no picture"), put("images/train/b/x.png", "");
  Config config = this->config(4);
  config.data.on_error = data::OnError::skip;
  std::atomic<bool> stop = false;
  std::string said;
  const TrainResult result = train(config, path("run"), stop, stopping_when("nothing", stop, &said));
  EXPECT_EQ(result.skipped, 2);
  EXPECT_EQ(read_status(path("run")).values.at("skipped_files"), 2);
  for (const char* file : {"images/train/a/3.png", "images/train/b/x.png"}) {
    const std::string note = "skipped " + path(file) + ": it cannot be decoded\n";
    const size_t first = said.find(note);
    ASSERT_NE(first, std::string::npos) << file;
    EXPECT_EQ(said.find(note, first + 1), std::string::npos) << "said once";
  }
}

TEST_F(FolderTest, NamesThatCannotBeStoredAreRefused) {
  write_images("images/train/a", 4), write_images("images/train/caf\xE9", 4);
  EXPECT_TRUE(mentions(error_of([&] { run(config(1), "run"); }), {"name of a class", "caf\\xE9", "not UTF-8"}));
  std::filesystem::rename(path("images/train/caf\xE9"), path("images/train/caf\xC3\xA9"));
  std::filesystem::rename(path("images"), path("images\xFF"));
  Config elsewhere = config(1);
  elsewhere.data.path = path("images\xFF");
  EXPECT_TRUE(mentions(error_of([&] { run(elsewhere, "run"); }), {"data.path", "images\\xFF", "not UTF-8"}));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
  std::filesystem::rename(path("images\xFF"), path("images"));
  run(config(1), "run");
  EXPECT_EQ(load(path("run"), Which::latest).classes[1], "caf\xC3\xA9");
}

TEST_F(TrainTest, TheLastStepIsEvaluatedAndNoneShortlyBeforeIt) {
  for (const auto& [steps, evaluated] : {std::pair<int64_t, std::set<int64_t>>{8, {4, 8}}, {9, {4, 9}}, {10, {4, 8, 10}}, {2, {2}}}) {
    Config config = tiny(steps);
    config.train.eval_every = 1;  // 4 steps
    const std::string name = "run" + std::to_string(steps);
    run(config, name);
    std::set<int64_t> got;
    for (const support::MetricRecord& line : support::read_metrics(metrics_path(path(name))))
      if (!std::isnan(line.number("eval/accuracy"))) got.insert(line.step);
    EXPECT_EQ(got, evaluated) << steps << " steps";
  }
}

TEST_F(TrainTest, ProgressFitsAnOrdinaryTerminal) {
  Config config = tiny(4);
  config.train.eval_every = 0.5;  // 2 steps
  std::atomic<bool> stop = false;
  std::string said;
  support::ProgressOutput output = stopping_when("nothing", stop, &said);
  output.columns = [] { return 80; };
  train(config, path("run"), stop, output);
  const auto line = [&](const std::string& count) {
    const size_t at = said.find(count);
    EXPECT_NE(at, std::string::npos) << count;
    return said.substr(at, said.find('\r', at) - at);
  };
  EXPECT_TRUE(mentions(line("1/4 "), {"1/4  loss ", "  acc ", "%  images/s ", "  ETA "}));
  EXPECT_TRUE(mentions(line("3/4 "), {"3/4  loss ", "  acc ", "%  images/s ", "  ETA "})) << "with a score, too";
  for (const char* images : {"16/64", "32/64", "48/64"}) EXPECT_TRUE(mentions(said, {std::string("2/4  evaluating ") + images + "  ETA "}));
  const size_t over = said.find("step 2: accuracy");
  EXPECT_EQ(said.substr(over, said.find("3/4 ", over) - over).find("evaluating"), std::string::npos);

  said.clear();
  output.terminal = false;
  train(config, path("lines"), stop, output);
  EXPECT_TRUE(mentions(said, {"step 2: accuracy"}));
  EXPECT_EQ(said.find("evaluating"), std::string::npos);
}

// From the same checkpoint, one step with the batch whole, in halves, in quarters and in shards of different sizes.
TEST_F(TrainTest, ABatchInShardsIsTheSameStep) {
  Config config = tiny(20);
  config.data.mixup = 0, config.model.attention.dropout = config.model.dropout = config.model.drop_path = 0;  // drawn for each shard
  run(config, "begin", 12);
  const std::string text = support::read_file(config_path(path("begin")));
  const size_t key = text.find("shards = 1\n");
  ASSERT_NE(key, std::string::npos);
  const auto after_a_step = [&](const std::string& parts) {
    const std::string name = "parts-" + parts;
    std::filesystem::copy(path("begin"), path(name), std::filesystem::copy_options::recursive);
    put(name + "/config.toml", std::string(text).replace(key, 10, "shards = " + parts));
    EXPECT_EQ(resume(name, 13, 20).step, 13);
    return latest_checkpoint(path(name)).found->file("");
  };
  const std::string whole = after_a_step("1"), before = latest_checkpoint(path("begin")).found->file("");
  for (const char* parts : {"2", "4", "8"}) {
    const std::string split = after_a_step(parts);
    const auto largest_difference = [](const std::string& left, const std::string& right) {
      const support::SafetensorsFile a(left), b(right);
      double most = 0;
      for (const support::TensorView& tensor : a.tensors()) {
        const auto *x = static_cast<const float*>(tensor.data), *y = static_cast<const float*>(b.at(tensor.name).data);
        for (size_t i = 0; i < tensor.elements(); ++i) most = std::max(most, std::abs(static_cast<double>(x[i]) - y[i]));
      }
      return most;
    };
    const double step = largest_difference(before + "weights.safetensors", whole + "weights.safetensors");
    EXPECT_GT(step, 1e-4);
    // The gradients differ by roundings; a step divides them by their usual size, which for few elements is small.
    EXPECT_LT(largest_difference(whole + "weights.safetensors", split + "weights.safetensors"), 1e-3 * step) << parts;
    EXPECT_LT(largest_difference(whole + "state.safetensors", split + "state.safetensors"), 1e-6) << parts;
  }
}

TEST_F(TrainTest, ALossThatIsNoNumberStopsTheRun) {
  Config config = tiny(20);
  config.optim.lr = 1e18, config.optim.warmup_steps = 0, config.train.checkpoint_every = 0.25;  // each step
  const std::string message = error_of([&] { run(config, "run"); });
  EXPECT_TRUE(
      mentions(message, {"the loss became", "in step 3", "the first that is not finite is block 0", "The last good checkpoint is",
                         path("run") + "/checkpoints/step-00000002", "hinge train --resume " + path("run") + " --set optim.lr=3e+17"}));
  EXPECT_EQ(latest_checkpoint(path("run")).found->step, 2) << "what is not finite is no checkpoint";
  const RunStatus status = read_status(path("run"));
  EXPECT_EQ(status.state, "diverged");
  EXPECT_EQ(status.message, message);
  config.train.checkpoint_every = 1;  // the first after 4 steps
  EXPECT_TRUE(mentions(error_of([&] { run(config, "other"); }), {"There is no checkpoint before it"}));
  // Begun anew, it says so to TensorBoard, which forgets the steps there were (7: the event of a session's start).
  EXPECT_TRUE(mentions(error_of([&] { resume("other", -1, 20); }), {"There is no checkpoint before it"}));
  std::vector<std::string> events;
  for (const auto& entry : std::filesystem::directory_iterator(path("other")))
    if (entry.path().filename().string().starts_with("events")) events.push_back(content("other/" + entry.path().filename().string()));
  ASSERT_EQ(events.size(), 2u);
  const std::string start("\x10\x01\x3A\x02\x08\x01", 6);
  EXPECT_NE(events[0].find(start) == std::string::npos, events[1].find(start) == std::string::npos) << "in the later one only";
  config.optim.lr = 1e30;  // not the loss but the squares of the gradients are beyond float32
  EXPECT_TRUE(mentions(error_of([&] { run(config, "third"); }), {"the gradient's norm became", "in step 2", "is that of norm.bias"}));
  config.optim.lr = 1e38, config.train.checkpoint_every = 0.25;  // the step itself leaves the numbers: it must not become a checkpoint
  EXPECT_TRUE(
      mentions(error_of([&] { run(config, "fourth"); }), {"the parameter", "is not finite after step 1", "There is no checkpoint"}));
}

// An element of the position embedding so large that only dropout keeps the numbers finite: it is taken out, or doubled.
TEST_F(TrainTest, TheLayerThatFailedIsFoundWithItsDropout) {
  Config config = tiny(4);
  config.optim.batch = 2, config.train.shards = 2;
  config.model.dropout = 0.5, config.model.drop_path = 0, config.model.attention.dropout = 0, config.data.mixup = 0;
  int failed_in_second_part = 0;
  for (int64_t seed = 0; seed < 8; ++seed) {
    const std::string name = "run-" + std::to_string(seed);
    config.train.seed = seed;
    {
      std::atomic<bool> stop = true;  // a checkpoint before the first step
      train(config, path(name), stop, stopping_when("nothing", stop));
    }
    TrainedModel loaded = load(path(name), Which::latest);
    {
      const at::NoGradGuard guard;
      loaded.model->parameters().find("pos_embed")->value.view(-1)[5].fill_(2e38);
    }
    save_weights(loaded.weights.checkpoint.file("weights.safetensors"), loaded.model->parameters());
    const InCall after_a_good_part("aten::argmax", 1, [] {});
    const std::string message = error_of([&] { resume(name, 1, 4); });
    if (message.empty()) continue;  // taken out of both images
    EXPECT_TRUE(mentions(message, {"in step 1", "the first that is not finite is the patch embedding"})) << seed;
    failed_in_second_part += after_a_good_part.calls();
  }
  EXPECT_GT(failed_in_second_part, 0);
}

TEST_F(TrainTest, MistakesAreNamedBeforeAnythingIsWritten) {
  const auto message = [&](const auto& change) {
    Config config = tiny(4);
    change(config);
    const std::string text = error_of([&] { run(config, "run"); });
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << text;
    return text;
  };
  EXPECT_TRUE(mentions(message([](Config& c) { c.model.classes = 3; }), {"model.classes is 3", "4 classes"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.train.shards = 3; }), {"train.shards", "power of two", "3"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.lr = 0; }), {"optim.lr"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.steps = 0; }), {"no step to train"}));
  const double nan = std::nan("");
  using Config = Config;
  const std::vector<std::pair<std::string, std::function<void(Config&)>>> wrong = {
      {"optim.lr", [&](Config& c) { c.optim.lr = nan; }},
      {"optim.beta1", [](Config& c) { c.optim.beta1 = 1; }},
      {"optim.beta2", [](Config& c) { c.optim.beta2 = -0.1; }},
      {"optim.eps", [](Config& c) { c.optim.eps = 0; }},
      {"optim.weight_decay", [](Config& c) { c.optim.weight_decay = -1; }},
      {"optim.clip", [](Config& c) { c.optim.clip = 0; }},
      {"optim.warmup_steps", [](Config& c) { c.optim.warmup_steps = -1; }},
      {"optim.epochs", [](Config& c) { c.optim.steps = {}, c.optim.epochs = -1; }},
      {"data.mixup", [](Config& c) { c.data.mixup = -0.5; }},
      {"data.threads", [](Config& c) { c.data.threads = 0; }},
      {"train.eval_every", [&](Config& c) { c.train.eval_every = nan; }},
      {"train.keep", [](Config& c) { c.train.keep = 0; }},
      {"attention.length_n", [](Config& c) { c.model.attention.length = "fixed", c.model.attention.length_n = 0; }},
      {"attention.alpha", [&](Config& c) { c.model.attention.alpha = nan; }},
      {"attention.gain", [&](Config& c) { c.model.attention.gain = nan; }},
      {"attention.bias", [&](Config& c) { c.model.attention.bias = nan; }},
      {"model.head_bias", [&](Config& c) { c.model.head_bias = nan; }},
  };
  for (const auto& [key, change] : wrong) EXPECT_TRUE(mentions(message(change), {key}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.data.format = "synthetik"; }), {"synthetik"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.model.image_size = 12; }), {"12 x 12"}));
  EXPECT_TRUE(mentions(error_of([&] { resume("nothing", -1, 1); }), {path("nothing"), "not a run"}));
  run(tiny(4), "run");
  EXPECT_TRUE(mentions(error_of([&] { run(tiny(4), "run"); }), {path("run"), "--resume"}));
}

}  // namespace
}  // namespace hinge::vision
