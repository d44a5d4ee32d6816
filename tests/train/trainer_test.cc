// The parts of a training and a whole one: schedule, Adam's state, evaluation; runs that repeat, stop and go on bit for bit.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "support/config.h"
#include "support/safetensors.h"
#include "tiny.h"
#include "train/adam.h"
#include "train/evaluate.h"
#include "train/schedule.h"
#include "train/vit_run.h"

namespace hinge::train {
namespace {

using support::error_of;
using support::mentions;

class TrainTest : public support::TemporaryFolderTest {
 protected:
  TrainResult run(const VitTrainConfig& config, const std::string& name, int64_t stop_after = -1) const {
    std::atomic<bool> stop = false;
    return train_vit(config, path(name), stop, stopping_at(stop_after, *config.optim.steps, stop));
  }
  TrainResult resume(const std::string& name, int64_t stop_after, int64_t steps) const {
    std::atomic<bool> stop = false;
    return resume_vit(path(name), stop, stopping_at(stop_after, steps, stop));
  }
};

TEST(Schedule, RisesAndFalls) {
  EXPECT_EQ(schedule_factor("cosine", 0, 100, 10), 0);
  EXPECT_EQ(schedule_factor("cosine", 5, 100, 10), 0.5);
  EXPECT_EQ(schedule_factor("cosine", 10, 100, 10), 1);
  EXPECT_NEAR(schedule_factor("cosine", 55, 100, 10), 0.5, 1e-15);
  EXPECT_NEAR(schedule_factor("cosine", 40, 100, 10), 0.75, 1e-15);  // a third of the way down: (1 + cos 60 degrees) / 2
  EXPECT_NEAR(schedule_factor("cosine", 100, 100, 10), 0, 1e-15);
  EXPECT_EQ(schedule_factor("linear", 55, 100, 10), 0.5);
  EXPECT_EQ(schedule_factor("linear", 0, 100, 0), 1);
  EXPECT_EQ(schedule_factor("constant", 99, 100, 10), 1);
  EXPECT_EQ(schedule_factor("constant", 1, 100, 10), 0.1);
  EXPECT_EQ(schedule_factor("cosine", 3, 4, 4), 0.75);  // nothing but warm-up
  EXPECT_EQ(schedule_factor("inverse_sqrt", 1, 100, 4), 0.25);
  EXPECT_EQ(schedule_factor("inverse_sqrt", 4, 100, 4), 1);
  EXPECT_EQ(schedule_factor("inverse_sqrt", 64, 100, 4), 0.25);
  EXPECT_EQ(schedule_factor("inverse_sqrt", 0, 100, 0), 1);
  EXPECT_EQ(schedule_factor("inverse_sqrt", 16, 100, 0), 0.25);
}

// ---- Adam

struct Small {
  nn::Parameters parameters;
  at::Tensor kernel, bias;
  Small() {
    at::manual_seed(1);
    kernel = parameters.add("kernel", at::randn({3, 5}), true);
    bias = parameters.add("bias", at::randn({7}), false);
  }
  void set_gradients(uint64_t seed) const {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    kernel.mutable_grad() = at::randn({3, 5}, generator), bias.mutable_grad() = at::randn({7}, generator);
  }
};

class AdamTest : public support::TemporaryFolderTest {};

TEST_F(AdamTest, TakesTheStepsOfTheFormula) {
  const Small small;
  Adam adam(small.parameters, {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3});
  at::Tensor m = at::zeros({3, 5}, at::kDouble), v = m.clone(), w = small.kernel.detach().to(at::kDouble);
  for (int t = 1; t <= 3; ++t) {
    small.set_gradients(static_cast<uint64_t>(t));
    const at::Tensor g = 0.5 * small.kernel.grad().to(at::kDouble);
    EXPECT_NEAR(adam.gradient_norm(), std::sqrt((small.kernel.grad().square().sum() + small.bias.grad().square().sum()).item<double>()),
                1e-6);
    adam.step(0.1, 0.02, 0.5);
    m = 0.8 * m + 0.2 * g, v = 0.95 * v + 0.05 * g * g;
    w = w - 0.1 * (m / (1 - std::pow(0.8, t))) / ((v / (1 - std::pow(0.95, t))).sqrt() + 1e-3) - 0.02 * w;
  }
  EXPECT_LE((small.kernel.to(at::kDouble) - w).abs().max().item<double>(), 2e-6);
  EXPECT_EQ(adam.steps(), 3);
}

TEST_F(AdamTest, BiasesDoNotDecayAndMissingGradientsAreZero) {
  const Small small;
  Adam adam(small.parameters, {});
  const at::Tensor kernel = small.kernel.detach().clone(), bias = small.bias.detach().clone();
  EXPECT_EQ(adam.gradient_norm(), 0);
  small.kernel.mutable_grad() = at::zeros({3, 5}), small.bias.mutable_grad() = at::zeros({7});
  adam.step(0.1, 0.5, 1);
  EXPECT_TRUE(at::allclose(small.kernel, kernel / 2));
  EXPECT_TRUE(at::equal(small.bias, bias));
}

TEST_F(AdamTest, GoesOnFromItsFile) {
  const Small straight, resumed;
  Adam whole(straight.parameters, {}), first(resumed.parameters, {});
  const auto step = [](const Small& small, Adam& adam, uint64_t seed) { small.set_gradients(seed), adam.step(0.1, 0.01, 1); };
  for (uint64_t t = 0; t < 5; ++t) step(straight, whole, t);
  for (uint64_t t = 0; t < 3; ++t) step(resumed, first, t);
  first.save(path("state"));
  Adam second(resumed.parameters, {});
  second.load(path("state"), first.steps());
  EXPECT_EQ(second.steps(), 3);
  for (uint64_t t = 3; t < 5; ++t) step(resumed, second, t);
  EXPECT_TRUE(at::equal(straight.kernel, resumed.kernel));
  EXPECT_TRUE(at::equal(straight.bias, resumed.bias));

  nn::Parameters other;
  other.add("kernel", at::zeros({5, 3}), true);
  EXPECT_TRUE(mentions(error_of([&] { Adam(other, {}).load(path("state"), 1); }), {path("state"), "m.kernel", "shape"}));
  nn::Parameters unknown;
  unknown.add("kernle", at::zeros({3, 5}), true);
  EXPECT_TRUE(mentions(error_of([&] { Adam(unknown, {}).load(path("state"), 1); }), {path("state"), "m.kernle", "m.kernel"}));
}

// ---- evaluation

TEST(Evaluate, CountsAsOneWouldByHand) {
  VitTrainConfig config = tiny(1);
  config.data.synthetic_classes = config.model.classes = 7, config.data.synthetic_count = 50;
  const models::Vit model(config.model, 0);
  at::manual_seed(3);
  for (const nn::Parameter& parameter : model.parameters().all()) {
    const at::NoGradGuard guard;
    parameter.value.add_(at::randn(parameter.value.sizes()) * 0.5);
  }
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(config.data, "test"));
  const data::Pipeline pipeline(config.data.eval_pp);
  for (const bool some : {false, true}) {
    // With `among`, label i of the set is class among[i] of the model.
    const std::vector<int64_t> among = some ? std::vector<int64_t>{6, 0, 5, 1, 4, 2, 3} : std::vector<int64_t>{};
    for (const auto kind : {kernels::CrossEntropy::softmax, kernels::CrossEntropy::sigmoid}) {
      int64_t top1 = 0, top5 = 0;
      double loss = 0;
      std::vector<int64_t> right(7), seen(7);
      for (int64_t i = 0; i < images->size(); ++i) {
        const at::NoGradGuard guard;
        auto pixels = pipeline.run(images->load(i), data::Random(0, data::Purpose::augment, 0, 0)).pixels;
        const at::Tensor all = model.forward(at::from_blob(pixels.data(), {1, 8, 8, 1}), false)[0].to(at::kDouble);
        std::vector<double> logits(7);
        for (size_t c = 0; c < 7; ++c) logits[c] = all[some ? among[c] : static_cast<int64_t>(c)].item<double>();
        const auto label = static_cast<size_t>(images->label(i));
        int64_t above = 0;
        double sum = 0;
        for (size_t c = 0; c < 7; ++c) {
          above += logits[c] > logits[label];
          if (kind == kernels::CrossEntropy::softmax)
            sum += std::exp(logits[c]);
          else
            loss += std::log1p(std::exp(c == label ? -logits[c] : logits[c]));
        }
        if (kind == kernels::CrossEntropy::softmax) loss += std::log(sum) - logits[label];
        top1 += above == 0, top5 += above < 5, ++seen[label], right[label] += above == 0;
      }
      EvaluationOptions options;
      options.batch = 16, options.threads = 2, options.loss = kind, options.among = among;
      int64_t last = 0;
      options.progress = [&](int64_t done, int64_t total) {
        last = done;
        EXPECT_EQ(total, 50);
      };
      const Evaluation got = evaluate(model, images, pipeline, options);
      EXPECT_EQ(got.images, 50);
      EXPECT_EQ(last, 50);
      EXPECT_EQ(got.top1, top1);
      EXPECT_EQ(got.top5, top5);
      EXPECT_GT(got.top5, got.top1);
      EXPECT_NEAR(got.loss, loss / 50, 1e-5 * loss / 50);
      for (size_t c = 0; c < 7; ++c) {
        EXPECT_EQ(got.classes[c].images, seen[c]);
        EXPECT_EQ(got.classes[c].right, right[c]);
      }
    }
  }
}

// ---- runs

TEST_F(TrainTest, LearnsWhatCanBeLearned) {
  VitTrainConfig config = tiny(200);
  config.data.synthetic_count = 256, config.data.mixup = 0, config.data.train_pp = config.data.eval_pp;
  config.optim.lr = 1e-2;
  const TrainResult result = run(config, "run");
  EXPECT_TRUE(result.finished);
  EXPECT_GE(result.score, 0.95) << "guessing would get 0.25";
  EXPECT_EQ(result.step, 200);
  const RunStatus status = read_status(path("run"));
  EXPECT_EQ(status.state, "done");
  EXPECT_EQ(status.best, result.best);
  const LoadedVit loaded = load_vit(path("run"), Which::latest);
  EXPECT_EQ(loaded.classes.size(), 4u);
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(loaded.config.data, "test"));
  EXPECT_EQ(evaluate(*loaded.model, images, data::Pipeline(loaded.config.data.eval_pp), {}).accuracy(), result.score);
}

TEST_F(TrainTest, TheSeedDecidesEveryBit) {
  VitTrainConfig config = tiny(12);
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
  VitTrainConfig config = tiny(24);
  config.optim.accumulate = 2;
  run(config, "whole");
  for (const bool recompute : {false, true}) {
    config.model.recompute = recompute;
    const std::string name = recompute ? "recomputed" : "parts";
    EXPECT_FALSE(run(config, name, 7).finished);
    EXPECT_EQ(read_status(path(name)).state, "stopped");
    EXPECT_EQ(resume(name, 8, 24).step, 8);  // a step with an evaluation and a checkpoint
    EXPECT_EQ(resume(name, 17, 24).step, 17);
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

TEST_F(TrainTest, AStopRightAfterResumingKeepsTheScore) {
  run(tiny(16), "run", 8);  // evaluated in step 8
  ASSERT_TRUE(latest_checkpoint(path("run")).found->score.has_value());
  const double score = *latest_checkpoint(path("run")).found->score;
  std::atomic<bool> stop = true;
  EXPECT_EQ(resume_vit(path("run"), stop, stopping_at(-1, 16, stop)).step, 8);
  EXPECT_EQ(latest_checkpoint(path("run")).found->score, score);
}

// From the same checkpoint, one step with the batch whole, in halves and in quarters.
TEST_F(TrainTest, ABatchInPartsIsTheSameStep) {
  VitTrainConfig config = tiny(20);
  config.data.mixup = 0, config.model.attention.dropout = config.model.dropout = config.model.drop_path = 0;  // drawn for each part
  run(config, "begin", 12);
  const std::string text = support::read_file(config_path(path("begin")));
  const size_t key = text.find("accumulate = 1\n");
  ASSERT_NE(key, text.npos);
  const auto after_a_step = [&](const std::string& parts) {
    const std::string name = "parts-" + parts;
    std::filesystem::copy(path("begin"), path(name), std::filesystem::copy_options::recursive);
    put(name + "/config.toml", std::string(text).replace(key, 14, "accumulate = " + parts));
    EXPECT_EQ(resume(name, 13, 20).step, 13);
    return latest_checkpoint(path(name)).found->file("");
  };
  const std::string whole = after_a_step("1"), before = latest_checkpoint(path("begin")).found->file("");
  for (const char* parts : {"2", "4"}) {
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
  VitTrainConfig config = tiny(20);
  config.optim.lr = 1e18, config.optim.warmup_steps = 0, config.train.checkpoint_every = 0.25;  // each step
  const std::string message = error_of([&] { run(config, "run"); });
  EXPECT_TRUE(mentions(message, {"the loss became", "in step 3", "the first that is not finite is block 0", "The last good checkpoint is",
                                 path("run") + "/checkpoints/step-00000002", "optim.lr"}));
  const RunStatus status = read_status(path("run"));
  EXPECT_EQ(status.state, "failed");
  EXPECT_EQ(status.message, message);
  config.train.checkpoint_every = 1;  // the first after 4 steps
  EXPECT_TRUE(mentions(error_of([&] { run(config, "other"); }), {"There is no checkpoint before it"}));
  config.optim.lr = 1e30;  // not the loss but the squares of the gradients are beyond float32
  EXPECT_TRUE(mentions(error_of([&] { run(config, "third"); }), {"the gradient's norm became", "in step 2", "is that of norm.bias"}));
  config.optim.lr = 1e38, config.train.checkpoint_every = 0.25;  // the step itself leaves the numbers: it must not become a checkpoint
  EXPECT_TRUE(
      mentions(error_of([&] { run(config, "fourth"); }), {"the parameter", "is not finite after step 1", "There is no checkpoint"}));
}

TEST_F(TrainTest, MistakesAreNamedBeforeAnythingIsWritten) {
  const auto message = [&](const auto& change) {
    VitTrainConfig config = tiny(4);
    change(config);
    const std::string text = error_of([&] { run(config, "run"); });
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << text;
    return text;
  };
  EXPECT_TRUE(mentions(message([](VitTrainConfig& c) { c.model.classes = 3; }), {"model.classes is 3", "4 classes"}));
  EXPECT_TRUE(mentions(message([](VitTrainConfig& c) { c.optim.accumulate = 3; }), {"optim.batch 16", "optim.accumulate 3"}));
  EXPECT_TRUE(mentions(message([](VitTrainConfig& c) { c.optim.lr = 0; }), {"optim.lr"}));
  EXPECT_TRUE(mentions(message([](VitTrainConfig& c) { c.optim.steps = 0; }), {"no step to train"}));
  EXPECT_TRUE(mentions(message([](VitTrainConfig& c) { c.data.format = "synthetik"; }), {"synthetik"}));
  EXPECT_TRUE(mentions(message([](VitTrainConfig& c) { c.model.image_size = 12; }), {"12 x 12"}));
  EXPECT_TRUE(mentions(error_of([&] { resume("nothing", -1, 1); }), {path("nothing"), "not a run"}));
  run(tiny(4), "run");
  EXPECT_TRUE(mentions(error_of([&] { run(tiny(4), "run"); }), {path("run"), "--resume"}));
}

}  // namespace
}  // namespace hinge::train
