// Trainings of translations: they learn, repeat, stop and go on bit for bit, keep their vocabulary, average their last checkpoints.
#include "tasks/translation/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "../../support/errors.h"
#include "../../support/temporary_folder.h"
#include "../../train/runs.h"
#include "support/config.h"
#include "support/safetensors.h"
#include "tasks/translation/trained_model.h"
#include "text/batches.h"
#include "text/source.h"
#include "tiny.h"

namespace hinge::translation {
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
using train::RunStatus;
using train::stopping_at;
using train::stopping_when;
using train::TrainResult;
using train::Which;

class TranslationTest : public support::TemporaryFolderTest {
 protected:
  TranslationTest() { write_tiny_text(folder_.string()); }

  Config tiny(int64_t steps) const { return translation::tiny(folder_.string(), steps); }
  TrainResult run(const Config& config, const std::string& name, int64_t stop_after = -1,
                  const BleuFunction& bleu = decode::greedy_bleu) const {
    std::atomic<bool> stop = false;
    return train(config, path(name), stop, stopping_at(stop_after, config.optim.steps.value_or(0), stop), bleu);
  }
  TrainResult resume(const std::string& name, int64_t stop_after, int64_t steps, const BleuFunction& bleu = decode::greedy_bleu) const {
    std::atomic<bool> stop = false;
    return translation::resume(path(name), {}, stop, stopping_at(stop_after, steps, stop), bleu);
  }
};

TEST_F(TranslationTest, LearnsWhatCanBeLearned) {
  Config config = tiny(200);
  config.model.dropout = 0, config.model.attention.dropout = 0, config.optim.label_smoothing = 0, config.train.eval_every = 4;
  const TrainResult result = run(config, "run");
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.items, "tokens");
  EXPECT_LT(-result.best, 0.7) << "a word has two tokens: without a look at the source, a token costs about " << std::log(9.0) / 2;
  EXPECT_TRUE(mentions(result.outcome, {"validation loss"}));

  // The loss is the mean over the tokens of the validation text, one sentence
  // at a time.
  const TrainedModel loaded = load(path("run"), Which::latest);
  EXPECT_EQ(loaded.config.model.vocabulary, 60);
  const at::NoGradGuard guard;
  double nll = 0;
  int64_t tokens = 0;
  const text::Corpus valid(text::read_text(config.data.source, text::Part::valid), loaded.vocabulary, config.data.corpus);
  ASSERT_EQ(valid.size(), 40);
  for (int64_t i = 0; i < valid.size(); ++i) {
    const auto row = [](std::span<const int32_t> ids) { return std::vector<int64_t>(ids.begin(), ids.end()); };
    std::vector<int64_t> in = row(valid.target(i)), out = in;
    in.insert(in.begin(), valid.bos()), out.push_back(valid.eos());
    const models::Seq2SeqOutput output = loaded.model->forward(models::sequences_of({row(valid.source(i))}), models::sequences_of({in}));
    const at::Tensor log_p = at::log_softmax(output.logits.to(at::kDouble), 1);
    for (size_t t = 0; t < out.size(); ++t, ++tokens) nll -= log_p[static_cast<int64_t>(t)][out[t]].item<double>();
  }
  EXPECT_NEAR(-result.score, nll / static_cast<double>(tokens), 1e-5);
  const RunStatus status = read_status(path("run"));
  EXPECT_EQ(status.state, "done");
  EXPECT_NEAR(status.values.at("perplexity"), std::exp(-result.score), 1e-9);
}

TEST_F(TranslationTest, StoppingAndGoingOnChangesNoBit) {
  Config config = tiny(24);
  config.train.shards = 2;
  run(config, "whole");
  EXPECT_FALSE(run(config, "parts", 5).finished);
  EXPECT_EQ(read_status(path("parts")).state, "stopped");
  EXPECT_EQ(resume("parts", 6, 24).step, 6);
  EXPECT_EQ(resume("parts", 17, 24).step, 17);
  EXPECT_EQ(resume("parts", 22, 24).step, 22);
  EXPECT_FALSE(resume("parts", 24, 24).finished);  // all steps are done, their evaluation is not
  {
    std::atomic<bool> stop = false;  // the evaluation is done, that of the mean is not
    EXPECT_FALSE(translation::resume(path("parts"), {}, stop, stopping_when("step 24: loss", stop)).finished);
  }
  EXPECT_TRUE(resume("parts", -1, 24).finished);
  EXPECT_EQ(last_checkpoint_bytes(path("whole"), 24), last_checkpoint_bytes(path("parts"), 24));
  expect_same_metrics(path("whole"), path("parts"));
  EXPECT_EQ(read_status(path("whole")).best, read_status(path("parts")).best);
  EXPECT_TRUE(resume("parts", -1, 24).finished);
  expect_same_metrics(path("whole"), path("parts"));

  config.train.gradient_checkpointing = true;  // runs blocks again, with the same dropout
  run(config, "checkpointed");
  EXPECT_EQ(last_checkpoint_bytes(path("whole"), 24), last_checkpoint_bytes(path("checkpointed"), 24));
  config.train.gradient_checkpointing = false, config.train.seed = 1;
  run(config, "other");
  EXPECT_NE(last_checkpoint_bytes(path("whole"), 24), last_checkpoint_bytes(path("other"), 24));
}

// With dropout. The last bits tell whether anything depends on who computes what.
TEST_F(TranslationTest, TheNumberOfWorkersChangesNoBit) {
  Config config = tiny(16);
  config.train.shards = 4, config.train.bleu_sentences = 4;
  run(config, "one");
  for (const int64_t workers : {2, 4}) {
    config.train.workers = workers;
    const std::string name = std::to_string(workers);
    run(config, name);
    EXPECT_EQ(last_checkpoint_bytes(path("one"), 16), last_checkpoint_bytes(path(name), 16)) << workers << " workers";
    expect_same_metrics(path("one"), path(name));
  }
  config.train.workers = 4;
  EXPECT_FALSE(run(config, "changing", 5).finished);
  std::atomic<bool> stop = false;
  EXPECT_FALSE(translation::resume(path("changing"), {"train.workers=1"}, stop, train::stopping_at(9, 16, stop)).finished);
  stop = false;
  EXPECT_TRUE(translation::resume(path("changing"), {"train.workers=2"}, stop, train::stopping_at(-1, 16, stop)).finished);
  EXPECT_EQ(last_checkpoint_bytes(path("one"), 16), last_checkpoint_bytes(path("changing"), 16));
  expect_same_metrics(path("one"), path("changing"));
}

// More shards than sentences: some have nothing to do.
TEST_F(TranslationTest, EmptyShardsAddNothing) {
  Config config = tiny(4);
  config.optim.batch = 24;
  config.model.dropout = 0, config.model.attention.dropout = 0, config.optim.regulariser_weight = 0;
  run(config, "whole");
  config.train.shards = 16, config.train.workers = 4;
  run(config, "shards");
  const auto loss = [&](const std::string& name) { return read_status(path(name)).values.at("loss"); };
  EXPECT_NEAR(loss("whole"), loss("shards"), 1e-4);
}

TEST_F(TranslationTest, AStepDoesNotDependOnItsShards) {
  Config config = tiny(8);
  config.model.dropout = 0, config.model.attention.dropout = 0, config.optim.lr = 1e-3;
  config.optim.batch = 1 << 14, config.optim.steps = 1;  // all the text
  run(config, "whole");
  config.train.shards = 8;
  run(config, "parts");
  const support::SafetensorsFile a(latest_checkpoint(path("whole")).found->file("state.safetensors")),
      b(latest_checkpoint(path("parts")).found->file("state.safetensors"));
  double most = 0, difference = 0;
  for (const support::TensorView& tensor : a.tensors()) {
    if (!tensor.name.starts_with("m.")) continue;
    const auto *x = static_cast<const float*>(tensor.data), *y = static_cast<const float*>(b.at(tensor.name).data);
    for (size_t i = 0; i < tensor.elements(); ++i)
      most = std::max(most, std::abs(static_cast<double>(x[i]))),
      difference = std::max(difference, std::abs(static_cast<double>(x[i]) - y[i]));
  }
  EXPECT_GT(most, 0);
  EXPECT_LT(difference, 0.02 * most);  // L_reg is a mean over rows, not over tokens: it does depend on the shards, a little
}

TEST_F(TranslationTest, AveragesTheLastCheckpoints) {
  Config config = tiny(17);
  config.train.keep = 20, config.train.eval_every = config.train.checkpoint_every = 0.3;
  run(config, "run");
  std::vector<int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(path("run/checkpoints")))
    steps.push_back(std::stoll(entry.path().filename().string().substr(5)));
  std::sort(steps.rbegin(), steps.rend());
  ASSERT_GT(steps.size(), 3u);
  const support::SafetensorsFile averaged(checkpoint_of(path("run"), 17).file("averaged.safetensors"));
  for (const support::TensorView& tensor : averaged.tensors()) {
    const auto count = static_cast<int64_t>(tensor.elements());
    at::Tensor sum = at::zeros(count, at::kDouble);
    for (size_t i = 0; i < 3; ++i) {
      const support::SafetensorsFile weights(checkpoint_of(path("run"), steps[i]).file("weights.safetensors"));
      sum += at::from_blob(const_cast<void*>(weights.at(tensor.name).data), {count}, at::kFloat);
    }
    EXPECT_TRUE(at::equal((sum / 3).to(at::kFloat), at::from_blob(const_cast<void*>(tensor.data), {count}, at::kFloat))) << tensor.name;
  }

  // What is loaded: the mean only where it is better.
  const TrainedModel mean = load(path("run"), Which::averaged), best = load(path("run"), Which::best);
  EXPECT_TRUE(mean.weights.averaged);
  const double of_mean = mean.weights.checkpoint.state["averaged_score"].get<double>();
  const double of_best = *best_checkpoint(path("run")).found->score;
  EXPECT_EQ(best.weights.averaged, of_mean > of_best);
  EXPECT_EQ(read_status(path("run")).best, std::max(of_mean, of_best));
  for (int again = 0; again < 2; ++again) {
    const RunStatus status = read_status(path("run"));
    EXPECT_NEAR(status.values.at("averaged_perplexity"), std::exp(-of_mean), 1e-9);
    EXPECT_NE(status.values.at("averaged_perplexity"), status.values.at("perplexity"));
    EXPECT_TRUE(resume("run", -1, 17).finished);  // which changes nothing
  }
  const auto first = [](const TrainedModel& loaded) { return loaded.model->parameters().all()[0].value; };
  EXPECT_FALSE(at::equal(first(mean), first(load(path("run"), Which::latest))));

  // Checkpoints that were needed for the mean go with it.
  config.train.keep = 1;
  run(config, "few");
  EXPECT_EQ(last_checkpoint_bytes(path("run"), 17), last_checkpoint_bytes(path("few"), 17));
  const auto left = std::distance(std::filesystem::directory_iterator(path("few/checkpoints")), std::filesystem::directory_iterator());
  EXPECT_LE(left, 2) << "the last and the best";
  config.train.average = 0;
  run(config, "none");
  EXPECT_TRUE(mentions(error_of([&] { load(path("none"), Which::averaged); }), {path("none"), "no averaged weights", "train.average"}));
}

TEST_F(TranslationTest, TheLengthRulesAreThoseOfTheConfig) {
  for (const std::string& rule : length_rule_names()) {
    Config config = tiny(1);
    config.model.attention.preset = "relu-vit", config.optim.regulariser_weight = 0, config.train.average = 0;
    const std::string stored = rule == "keys" ? "visible" : rule;  // which decoding knows
    for (const auto& [part, given] : {std::pair("encoder", rule), std::pair("decoder", stored), std::pair("cross", rule)})
      support::override_config(config, fmt::format("model.{}.attention.length={}", part, given));
    run(config, rule);
    const nlohmann::json rules = latest_checkpoint(path(rule)).found->state["length_rules"];
    EXPECT_EQ(rules["decoder"], stored);
    for (const char* part : {"encoder", "cross"}) EXPECT_EQ(rules[part], rule);
    EXPECT_EQ(load(path(rule), Which::latest).config.model.cross.attention.length, rule);
  }
  std::string text = content("none/config.toml");
  text.replace(text.find("length = \"none\"", text.find("[model.cross.attention]")), 15, "length = \"visible\"");
  put("none/config.toml", text);
  const std::vector<std::string> parts = {path("none"), "length rule none in its cross", "now gives visible", "model.cross.attention"};
  EXPECT_TRUE(mentions(error_of([&] { load(path("none"), Which::latest); }), parts));
  EXPECT_TRUE(mentions(error_of([&] { resume("none", -1, 1); }), parts));
}

TEST_F(TranslationTest, TheRegulariserPullsTheRowSums) {
  Config config = tiny(60);
  config.optim.regulariser_weight = 1, config.train.average = 0;
  const auto last = [&](const char* name) { return support::read_metrics(metrics_path(path(name))).back(); };
  const auto regulariser = [&](const char* name) {
    double value = std::nan("");
    for (const support::MetricRecord& record : support::read_metrics(metrics_path(path(name))))
      if (const double here = record.number("train/regulariser"); std::isfinite(here)) value = here;
    return value;
  };
  run(config, "strong");
  config.optim.regulariser_weight = 1e-6;
  run(config, "weak");
  EXPECT_LT(regulariser("strong"), 0.7 * regulariser("weak"));
  // A model that has none trains with the same config, and what is stored says
  // so.
  config.model.attention.preset = "softmax", config.optim.steps = 2;
  run(config, "softmax");
  EXPECT_TRUE(std::isnan(regulariser("softmax")));
  EXPECT_FALSE(std::isnan(last("softmax").number("eval/loss")));
  EXPECT_EQ(load(path("softmax"), Which::latest).config.optim.regulariser_weight, 0);
}

// What the first step finds, with the same weights for all.
TEST_F(TranslationTest, TheMarginOfTheEntropyIsThatOfTheConfig) {
  const auto regulariser = [&](const std::string& margin, bool checkpointing) {
    Config config = tiny(1);
    config.train.log_steps = 1, config.train.average = 0, config.train.gradient_checkpointing = checkpointing;
    support::override_config(config, "optim.regulariser_margin=" + margin);
    const std::string name = "margin-" + margin + (checkpointing ? "-checkpointed" : "");
    run(config, name);
    return support::read_metrics(metrics_path(path(name))).front().number("train/regulariser");
  };
  const double paper = regulariser("0.7", false), all = regulariser("0", false), none = regulariser("none", false);
  EXPECT_GT(all, paper);
  EXPECT_GT(paper, none);
  EXPECT_GT(none, 0);
  EXPECT_EQ(regulariser("none", true), none);
  EXPECT_EQ(regulariser("0", true), all);
  EXPECT_EQ(Config().optim.regulariser_margin, 0.7);
}

// The gradient that a step finds tells its weight: with a learning rate too small to move anything, step s of all runs sees the same model
// and the same batch, and differs in the weight alone.
TEST_F(TranslationTest, TheRegulariserGrowsInItsWarmUp) {
  constexpr int64_t kWarmup = 4;
  Config config = tiny(kWarmup + 3);
  config.optim.lr = 1e-30, config.train.log_steps = 1, config.train.eval_every = config.train.checkpoint_every = 100;
  config.train.average = 0;
  // Of each step, from 0.
  const auto gradient_norms = [&](const std::string& name, double weight, int64_t warmup) {
    config.optim.regulariser_weight = weight, config.optim.regulariser_warmup_steps = warmup;
    run(config, name);
    std::vector<double> norms;
    for (const support::MetricRecord& record : support::read_metrics(metrics_path(path(name))))
      if (const double norm = record.number("train/gradient_norm"); std::isfinite(norm)) norms.push_back(norm);
    EXPECT_EQ(norms.size(), static_cast<size_t>(*config.optim.steps));
    return norms;
  };
  const std::vector<double> growing = gradient_norms("growing", 8, kWarmup), none = gradient_norms("none", 0, 0),
                            half = gradient_norms("half", 4, 0), full = gradient_norms("full", 8, 0);
  for (size_t step = 0; step < full.size(); ++step) {
    EXPECT_GT(half[step], 1.1 * none[step]);  // so that they can be told from each other
    EXPECT_GT(full[step], 1.1 * half[step]);
  }
  const auto expect_same = [&](size_t step, const std::vector<double>& constant) {
    EXPECT_NEAR(growing.at(step), constant.at(step), 1e-4 * constant.at(step)) << "step " << step;
  };
  expect_same(0, none);
  expect_same(kWarmup / 2, half);
  expect_same(kWarmup, full);
  expect_same(kWarmup + 2, full);
  EXPECT_GT(growing[kWarmup - 1], 1.05 * half[kWarmup - 1]);
  EXPECT_LT(1.05 * growing[kWarmup - 1], full[kWarmup - 1]);
}

TEST_F(TranslationTest, BleuIsAskedFor) {
  Config config = tiny(4);
  config.train.bleu_sentences = 8, config.train.average = 0;
  int asked = 0;
  // Sources that were cut stay cut: the model cannot read more.
  config.data.corpus.longest = config.model.max_length = 4, config.data.corpus.over_long = text::OverLong::truncate;
  size_t longest = 0;
  const BleuFunction bleu = [&](const models::Seq2Seq&, const text::Vocabulary& vocabulary,
                                const std::vector<std::vector<int32_t>>& sources, const std::vector<std::string>& references,
                                const BleuProgress&) {
    EXPECT_EQ(sources.size(), 8u);
    for (const std::vector<int32_t>& source : sources) {
      EXPECT_EQ(source.back(), vocabulary.eos());
      longest = std::max(longest, source.size());
    }
    EXPECT_EQ(references.size(), 8u);
    EXPECT_EQ(vocabulary.decode(vocabulary.encode(references[0])), references[0]);
    return 12.0 + ++asked;
  };
  run(config, "run", -1, bleu);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(longest, 4u);
  EXPECT_EQ(read_status(path("run")).values.at("bleu"), 13);
}

TEST_F(TranslationTest, BleuShowsHowFarItIsAndStops) {
  Config config = tiny(6);
  config.train.log_steps = 2, config.train.bleu_sentences = 12, config.train.average = 0;
  int64_t translated = 0;
  const BleuFunction bleu = [&](const auto&, const auto&, const auto& sources, const auto&,
                                const BleuProgress& progress) -> std::optional<double> {
    const int64_t all = std::ssize(sources);
    for (translated = 4; translated < all; translated += 4)
      if (!progress(translated, all)) return {};
    progress(all, all);
    return 12;
  };
  std::atomic<bool> stop = false;
  std::string said;
  EXPECT_TRUE(train(config, path("whole"), stop, stopping_when("never", stop, &said), bleu).finished);
  for (const char* count : {"4/12", "8/12", "12/12"}) EXPECT_TRUE(mentions(said, {std::string("6/6  translating ") + count + "  "}));

  EXPECT_FALSE(train(config, path("parts"), stop, stopping_when("translating 4/12", stop), bleu).finished);
  EXPECT_EQ(translated, 4);
  EXPECT_EQ(read_status(path("parts")).state, "stopped");
  EXPECT_TRUE(resume("parts", -1, 6, bleu).finished);
  EXPECT_EQ(last_checkpoint_bytes(path("whole"), 6), last_checkpoint_bytes(path("parts"), 6));
  expect_same_metrics(path("whole"), path("parts"));
}

// In the evaluation of a step, and in that of the mean of the last checkpoints, in which the model has other weights than its own.
TEST_F(TranslationTest, AFailedEvaluationLosesNoStep) {
  Config config = tiny(12);
  config.train.bleu_sentences = 4, config.train.eval_every = 0.5, config.train.checkpoint_every = 0.5;
  int asked = 0, fails_at = 0;
  const BleuFunction bleu = [&](const auto&...) -> double {
    if (++asked == fails_at) throw std::runtime_error("no BLEU today");
    return 12;
  };
  run(config, "whole", -1, bleu);
  const int all = asked;
  ASSERT_GT(all, 2);
  for (const int call : {1, all}) {
    const std::string name = "fails-at-" + std::to_string(call);
    asked = 0, fails_at = call;
    EXPECT_TRUE(mentions(error_of([&] { run(config, name, -1, bleu); }), {"no BLEU today"}));
    const CheckpointSearch last = latest_checkpoint(path(name));
    ASSERT_TRUE(last.found);
    EXPECT_EQ(last.found->step, read_status(path(name)).step);
    EXPECT_EQ(last.found->step == 12, call == all);
    if (call == all) {
      EXPECT_EQ(support::read_file(last.found->file("weights.safetensors")),
                content("whole/checkpoints/step-00000012/weights.safetensors"));
    }
    fails_at = 0;
    EXPECT_TRUE(resume(name, -1, 12, bleu).finished);
    EXPECT_EQ(last_checkpoint_bytes(path("whole"), 12), last_checkpoint_bytes(path(name), 12));
    expect_same_metrics(path("whole"), path(name));
  }
}

TEST_F(TranslationTest, ARunKeepsItsVocabulary) {
  Config config = tiny(12);
  run(config, "run", 6);
  const std::string bytes = content("run/vocabulary.model");
  config.data.vocabulary.size = 50;
  run(config, "other", 1);
  put("run/vocabulary.model", content("other/vocabulary.model"));
  for (const auto& use :
       {std::function<void()>([&] { resume("run", -1, 12); }), std::function<void()>([&] { load(path("run"), Which::latest); })})
    EXPECT_TRUE(mentions(error_of(use), {path("run/vocabulary.model"), "is damaged", "checksum"}));
  std::filesystem::remove(path("run/checksums.json"));  // as earlier versions wrote it
  EXPECT_TRUE(mentions(error_of([&] { resume("run", -1, 12); }), {path("run"), "60", "50"}));
  EXPECT_TRUE(mentions(error_of([&] { load(path("run"), Which::latest); }), {path("run"), "60", "50"}));
  put("run/vocabulary.model", bytes);
  EXPECT_TRUE(resume("run", -1, 12).finished);

  // A given vocabulary is taken as it is.
  put("given.model", bytes);
  config.data.vocabulary_file = path("given.model");
  run(config, "given");
  EXPECT_EQ(content("given/vocabulary.model"), bytes);
}

TEST_F(TranslationTest, ALossThatIsNoNumberStopsTheRun) {
  Config config = tiny(20);
  config.optim.lr = 1e18, config.optim.warmup_steps = 0;
  const std::string message = error_of([&] { run(config, "run"); });
  EXPECT_TRUE(mentions(message, {"became", "in step", "the first that", "checkpoint"}));
  EXPECT_EQ(read_status(path("run")).state, "diverged");
  EXPECT_EQ(read_status(path("run")).message, message);
}

TEST_F(TranslationTest, MistakesAreNamedBeforeAnythingIsWritten) {
  const auto message = [&](const auto& change) {
    Config config = tiny(4);
    change(config);
    const std::string text = error_of([&] { run(config, "run"); });
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << text;
    return text;
  };
  EXPECT_TRUE(mentions(message([](Config& c) { c.model.vocabulary = 61; }), {"model.vocabulary is 61", "60 tokens"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.lr = 0; }), {"optim.lr"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.beta2 = 1; }), {"optim.beta2"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.regulariser_warmup_steps = -1; }), {"optim.regulariser_warmup_steps"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.train.shards = 3; }), {"train.shards", "power of two", "3"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.label_smoothing = 1; }), {"optim.label_smoothing"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.regulariser_weight = -1; }), {"optim.regulariser_weight"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.regulariser_margin = -0.1; }), {"optim.regulariser_margin", "-0.1", "none"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.steps = 0; }), {"no step to train"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.epochs = 1e5; }), {"optim.epochs", "10000", "optim.steps"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.optim.batch = 3; }), {"a batch holds 3", "optim.batch", "data.longest_tokens"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.data.corpus.longest = 65; }), {"model.max_length 64", "data.longest_tokens 65"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.data.source.train = "nowhere"; }), {"nowhere"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.data.vocabulary.size = 30000; }), {"30000"}));
  // The model's, before the text is looked for.
  EXPECT_TRUE(mentions(message([](Config& c) { c.data.source.train = "nowhere", c.model.attention.preset = "rleu"; }), {"rleu"}));
  EXPECT_TRUE(mentions(message([](Config& c) { c.data.source.train = "nowhere", c.model.max_length = 59; }), {"model.max_length 59"}));
  EXPECT_TRUE(mentions(error_of([&] { resume("nothing", -1, 1); }), {path("nothing"), "not a run"}));
}

TEST_F(TranslationTest, ChangedTextIsSaid) {
  run(tiny(12), "run", 6);
  put("train.en", content("train.en") + "one two\n");
  put("train.de", content("train.de") + "zwei eins\n");
  std::string said;
  std::atomic<bool> stop = false;
  support::ProgressOutput output = stopping_at(-1, 12, stop);
  output.write = [&](std::string_view text) { said += text; };
  EXPECT_TRUE(translation::resume(path("run"), {}, stop, output).finished);
  EXPECT_TRUE(mentions(said, {"training: 241 pairs", "has changed since this run began"}));
  // It stays known when the run has gone on with the new text more than once.
  EXPECT_TRUE(latest_checkpoint(path("run")).found.value().state.contains("text_has_changed"));
  EXPECT_TRUE(translation::resume(path("run"), {"optim.steps=14"}, stop, stopping_at(-1, 14, stop)).finished);
  EXPECT_TRUE(latest_checkpoint(path("run")).found.value().state.contains("text_has_changed"));
  run(tiny(2), "other");
  EXPECT_FALSE(latest_checkpoint(path("other")).found.value().state.contains("text_has_changed"));
}

TEST_F(TranslationTest, ARunsConfigCanBeChangedAndTrainedAnew) {
  Config config = tiny(2);
  config.model.attention.gamma = 2, config.model.cross.attention.preset = "softmax";
  run(config, "run");
  const auto changed = [&](const std::vector<std::string>& changes) {
    Config stored;
    support::read_config(stored, config_path(path("run")));
    train::change_config(stored, changes);
    return models::resolved(stored.model);
  };
  const models::Seq2SeqConfig sigmoid = changed({"model.attention.preset=sigmoid"});
  EXPECT_EQ(sigmoid.encoder_attention().preset, "sigmoid");
  EXPECT_EQ(sigmoid.decoder_attention().preset, "sigmoid");
  EXPECT_EQ(sigmoid.cross_attention().preset, "softmax") << "its own";
  const models::Seq2SeqConfig one_kept = changed({"model.encoder.attention.preset=reluformer", "model.attention.preset=sigmoid"});
  EXPECT_EQ(one_kept.encoder_attention().preset, "reluformer");
  EXPECT_EQ(one_kept.decoder_attention().preset, "sigmoid");
  EXPECT_EQ(changed({"model.attention.gamma=3"}).encoder_attention().gamma, 3);
  EXPECT_EQ(changed({"model.attention.dropout=0.2"}).decoder_attention().dropout, 0.2);
}

TEST_F(TranslationTest, WhatIsLongerThanTheRunIsNever) {
  Config config = tiny(4);
  config.train.eval_every = 1e300, config.train.checkpoint_every = 1e9;
  EXPECT_TRUE(run(config, "run").finished);
  EXPECT_TRUE(latest_checkpoint(path("run")).found.value().score) << "evaluated at the end";
}

}  // namespace
}  // namespace hinge::translation
