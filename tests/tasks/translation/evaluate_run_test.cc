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

TEST_F(EvaluateTranslation, TakesOtherText) {
  const tasks::EvalReport test = evaluate_run({.run = path("run"), .split = "test"});
  EXPECT_EQ(test.json["items"], 2);
  EXPECT_NEAR(test.json["perplexity"].get<double>(), std::exp(test.json["loss"].get<double>()), 1e-9);
  const tasks::EvalReport files = evaluate_run({.run = path("run"), .data = path("test.en") + "," + path("test.de")});
  EXPECT_EQ(files.json["loss"], test.json["loss"]);
  EXPECT_THROW(evaluate_run({.run = path("run"), .split = "tset"}), tasks::RequestError);
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .split = "tset"}); }), {"--split", "'tset'", "'test'"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .data = "test"}); }), {"--data", "SOURCE,TARGET"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .data = "a,b", .split = "test"}); }), {"--data", "--split"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .classes = {"cat"}}); }), {"--classes"}));
  EXPECT_TRUE(mentions(error_of([&] { evaluate_run({.run = path("run"), .length = "fixed"}); }), {"--length", "runs of images"}));
}

}  // namespace
}  // namespace hinge::translation
