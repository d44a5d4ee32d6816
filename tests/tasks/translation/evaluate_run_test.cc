// hinge eval of a translation run: the numbers of its training, on other text, and what it does not take.
#include "tasks/translation/evaluate_run.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../../support/errors.h"
#include "../../support/temporary_folder.h"
#include "../../train/runs.h"
#include "tasks/translation/training.h"
#include "tiny.h"

namespace hinge::translation {
namespace {

using support::error_of;
using support::mentions;
using train::Which;

class EvaluateTranslation : public support::TemporaryFolderTest {
 protected:
  EvaluateTranslation() {
    write_tiny_text(folder_.string());
    put("test.en", "one two\nthree\n");
    put("test.de", "eins zwei\ndrei\n");
    Config config = tiny(folder_.string(), 8);
    config.train.shards = 2;
    std::atomic<bool> stop = false;
    train(config, path("run"), stop, train::stopping_when("never", stop));
  }
};

TEST_F(EvaluateTranslation, GivesTheNumbersOfTheTraining) {
  const train::RunStatus status = train::read_status(path("run"));
  const tasks::EvalReport latest = evaluate_run({path("run"), Which::latest}), mean = evaluate_run({path("run"), Which::averaged});
  EXPECT_EQ(latest.json["loss"], status.values.at("loss"));
  EXPECT_EQ(latest.json["perplexity"], status.values.at("perplexity"));
  EXPECT_EQ(latest.json["token_accuracy"], status.values.at("token_accuracy"));
  EXPECT_EQ(latest.json["items"], 40);
  EXPECT_FALSE(latest.weights.averaged);
  EXPECT_EQ(mean.json["loss"], status.values.at("averaged_loss"));
  EXPECT_TRUE(mean.weights.averaged);
  EXPECT_TRUE(mentions(latest.text, {"40 pairs of valid", "loss", "perplexity", "token accuracy"}));
}

TEST_F(EvaluateTranslation, MeasuresSeveralSplitsTogether) {
  put("more.en", "four\nfive six\nseven\n");
  put("more.de", "vier\nfuenf sechs\nsieben\n");
  const nlohmann::json both = evaluate_run({.run = path("run"), .splits = {"test", "more"}}).json;
  const nlohmann::json test = evaluate_run({.run = path("run"), .splits = {"test"}}).json;
  EXPECT_FALSE(test.contains("splits"));
  EXPECT_EQ(both["items"], 5);
  EXPECT_EQ(both["data"], "test, more");
  EXPECT_EQ(both["splits"]["test"]["loss"], test["loss"]);
  EXPECT_EQ(both["splits"]["more"]["items"], 3);
  // Over all tokens.
  const auto nll = [](const nlohmann::json& of) { return of["loss"].get<double>() * of["tokens"].get<double>(); };
  EXPECT_NEAR(nll(both), nll(both["splits"]["test"]) + nll(both["splits"]["more"]), 1e-9);
}

TEST_F(EvaluateTranslation, ScoresTranslations) {
  put("more.en", "four\nfive six\nseven\n");
  put("more.de", "vier\nfuenf sechs\nsieben\n");
  const tasks::EvalReport report = evaluate_run({.run = path("run"), .splits = {"test", "more"}, .bleu = decode::TranslationOptions()});
  const nlohmann::json& json = report.json;
  for (const char* mean : {"bleu", "chrf", "brevity_penalty"})
    EXPECT_NEAR(json[mean].get<double>(), (json["splits"]["test"][mean].get<double>() + json["splits"]["more"][mean].get<double>()) / 2,
                1e-9)
        << mean;
  EXPECT_GT(json["length_ratio"], 0);
  EXPECT_GE(json["translated_tokens"], 5);  // an end token each
  EXPECT_GT(json["decoding_seconds"], 0);
  EXPECT_GT(json["tokens_per_second"], 0);
  EXPECT_TRUE(mentions(report.text, {"5 pairs of test, more", "BLEU", "brevity penalty", "chrF", "tokens/s"}));
  EXPECT_FALSE(evaluate_run({.run = path("run")}).json.contains("bleu"));
}

TEST_F(EvaluateTranslation, TakesOtherConfigs) {
  const auto items = [&](const std::string& change) { return evaluate_run({.run = path("run"), .changes = {change}}).json["items"]; };
  EXPECT_EQ(items("data.valid=test"), 2);
  EXPECT_LT(items("data.document_tokens=60"), 40);
  // What the model cannot read, and weights that do not fit.
  EXPECT_TRUE(mentions(error_of([&] { items("data.document_tokens=65"); }), {"model.max_length 64", "data.document_tokens 65"}));
  EXPECT_TRUE(mentions(error_of([&] { items("model.ffn.width=65"); }), {"mlp"}));
  EXPECT_TRUE(mentions(error_of([&] { items("data.vlaid=test"); }), {"data.vlaid", "'data.valid'"}));
}

TEST_F(EvaluateTranslation, TakesOtherText) {
  const tasks::EvalReport test = evaluate_run({.run = path("run"), .splits = {"test"}});
  EXPECT_EQ(test.json["items"], 2);
  EXPECT_NEAR(test.json["perplexity"].get<double>(), std::exp(test.json["loss"].get<double>()), 1e-9);
  const tasks::EvalReport files = evaluate_run({.run = path("run"), .data = path("test.en") + "," + path("test.de")});
  EXPECT_EQ(files.json["loss"], test.json["loss"]);
  EXPECT_THROW(evaluate_run({.run = path("run"), .splits = {"tset"}}), tasks::RequestError);
  EXPECT_TRUE(
      mentions(error_of([&] { evaluate_run({.run = path("run"), .splits = {"tset"}}); }), {"--split", "'tset'", "'test'", "NAME.en"}));
  EXPECT_EQ(evaluate_run({.run = path("run"), .splits = {"valid"}}).json["items"], 40);
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .data = "test"}); }), {"--data", "SOURCE,TARGET"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .data = "a,b", .splits = {"test"}}); }), {"--data", "--split"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .classes = {"cat"}}); }), {"--classes"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .length = "fixed"}); }), {"--length", "runs of images"}));
}

}  // namespace
}  // namespace hinge::translation
