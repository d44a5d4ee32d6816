// The commands that use a trained model, as a user runs them, on a tiny one that is trained here on made-up images.
// HINGE_COMMAND is the program's path.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "../support/temporary_folder.h"
#include "command.h"
#include "data/codec.h"
#include "data/source.h"
#include "small_vision.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kConfig = std::string(kSmallVision) + R"(steps = 30
lr = 5e-3
[train]
threads = 1
checkpoint_every = 5
average = 2
)";

hinge::data::DataSource images_of_run() {
  hinge::data::DataSource source;
  source.format = "synthetic";
  source.split = "test";
  source.synthetic.shape = {16, 16, 3};
  source.synthetic.classes = 4;
  source.synthetic.count = 96;
  return source;
}

class TrainedModel : public testing::Test {
 protected:
  // One training for all tests.
  static void SetUpTestSuite() {
    temporary_.emplace();
    folder_ = temporary_->path();
    std::ofstream(folder_ / "config.toml") << kConfig;
    std::string out, err;
    ASSERT_EQ(command("train " + path("config.toml") + " --out " + path("run"), out, err), 0) << err;
    const auto images = hinge::data::open_images(images_of_run());
    for (int64_t i = 0; i < 4; ++i) {
      const std::vector<uint8_t> png = hinge::data::encode_png(images->load(i));
      std::ofstream(folder_ / (std::to_string(i) + ".png"), std::ios::binary)
          .write(reinterpret_cast<const char*>(png.data()), static_cast<std::streamsize>(png.size()));
      labels_[i] = images->label(i);
    }
  }
  static void TearDownTestSuite() { temporary_.reset(); }

  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static int command(const std::string& arguments, std::string& out, std::string& err) {
    const hinge_command::Result result = hinge_command::run(folder_, arguments);
    out = result.out, err = result.err;
    return result.code;
  }
  int run(const std::string& arguments) { return command(arguments, out_, err_); }
  json answer(const std::string& arguments) {
    EXPECT_EQ(run(arguments + " --json"), 0) << err_;
    return json::parse(out_);
  }
  bool says(const std::string& part) const { return out_.find(part) != std::string::npos; }
  bool complains(const std::string& part) const { return err_.find(part) != std::string::npos; }

  static inline std::optional<hinge::support::TemporaryFolder> temporary_;
  static inline fs::path folder_;
  static inline int64_t labels_[4] = {};
  std::string out_, err_;
};

TEST_F(TrainedModel, IsEvaluated) {
  const json all = answer("eval " + path("run"));
  EXPECT_EQ(all["images"], 96);
  EXPECT_GT(all["accuracy"], 0.9);
  EXPECT_EQ(all["top5"], 1.0);
  EXPECT_LT(all["loss"], 1);  // log 4 by chance
  int64_t images = 0, right = 0;
  for (const json& entry : all["classes"]) images += entry["images"].get<int64_t>(), right += entry["right"].get<int64_t>();
  EXPECT_EQ(images, 96);
  EXPECT_NEAR(static_cast<double>(right) / 96, all["accuracy"].get<double>(), 1e-9);
  EXPECT_EQ(answer("eval " + path("run") + " --split 'test[:10]'")["images"], 10);
  EXPECT_EQ(answer("eval " + path("run") + " --data synthetic --split train")["images"], 96);
  EXPECT_EQ(answer("eval " + path("run") + " --set 'data.eval=test[:7]'")["images"], 7);
  EXPECT_EQ(run("eval " + path("run") + " --split test,train"), 2);
  EXPECT_TRUE(complains("--split"));
  EXPECT_EQ(run("eval " + path("run") + " --bleu"), 2);
  EXPECT_TRUE(complains("--bleu"));
  ASSERT_EQ(run("eval " + path("run")), 0);
  EXPECT_TRUE(says("top-1") && says("top-5") && says("loss") && says("accuracy"));
}

TEST_F(TrainedModel, IsEvaluatedAtAnotherLength) {
  const std::string eval = "eval " + path("run");
  const json same = answer(eval), tokens = answer(eval + " --set model.image_size=24 --length keys");
  const auto side = same["image_size"].get<int64_t>();
  EXPECT_EQ(tokens["image_size"], 24);
  EXPECT_EQ(tokens["tokens"].get<int64_t>() * side * side, same["tokens"].get<int64_t>() * 24 * 24);
  EXPECT_EQ(tokens["preprocessing"], "resize(24)|value_range(-1,1)");
  EXPECT_EQ(tokens["images"], 96);
  EXPECT_LT(tokens["loss"], 1.3) << "the same pictures, larger; by chance 1.39";
  // The number of tokens is that of training, or the new one, which is the run's own rule.
  EXPECT_EQ(answer(eval + " --set model.image_size=24")["loss"], tokens["loss"]);
  EXPECT_EQ(answer(eval + " --set model.image_size=24 --length visible")["loss"], tokens["loss"]);
  EXPECT_NE(answer(eval + " --set model.image_size=24 --length fixed")["loss"], tokens["loss"]);
  EXPECT_NEAR(answer(eval + " --length fixed")["loss"].get<double>(), same["loss"].get<double>(), 1e-6);
  EXPECT_NE(answer(eval + " --length none")["loss"], same["loss"]);
  EXPECT_NE(answer(eval + " --set model.attention.alpha=0.5")["loss"], same["loss"]);
  const json blurred = answer(eval + " --pp 'resize(2)|resize(24)|value_range(-1,1)' --set model.image_size=24");
  EXPECT_NE(blurred["loss"], tokens["loss"]);
  ASSERT_EQ(run(eval + " --set model.image_size=24"), 0);
  EXPECT_TRUE(says("24 x 24 pixels")) << out_;
  EXPECT_EQ(run(eval + " --set model.width=32"), 1);
  EXPECT_TRUE(complains("model.width=32") && complains("model.image_size")) << err_;
  EXPECT_EQ(run(eval + " --set model.attention.gate=linear"), 1);
  EXPECT_TRUE(complains("blocks.0.attn.gate.weight")) << err_;
  EXPECT_EQ(run(eval + " --length long"), 2);
  EXPECT_TRUE(complains("none, fixed, keys, visible")) << err_;
  EXPECT_EQ(run(eval + " --pp 'resise(16)'"), 2);
  EXPECT_TRUE(complains("--pp") && complains("resise")) << err_;
}

TEST_F(TrainedModel, CanBeTheMeanOfItsLastCheckpoints) {
  const json mean = answer("eval " + path("run") + " --checkpoint averaged"),
             latest = answer("eval " + path("run") + " --checkpoint latest");
  EXPECT_EQ(mean["averaged"], true);
  EXPECT_EQ(latest["averaged"], false);
  EXPECT_NE(mean["loss"], latest["loss"]);
  ASSERT_EQ(run("eval " + path("run") + " --checkpoint averaged"), 0);
  EXPECT_TRUE(says("averaged weights"));
  for (const char* weights : {"averaged", "latest"})
    EXPECT_EQ(run("predict " + path("run") + " " + path("0.png") + " --checkpoint " + weights), 0) << err_;
}

TEST_F(TrainedModel, IsEvaluatedAmongSomeClasses) {
  std::ofstream(folder_ / "some.txt") << "class 3\nclass 1\n";
  const json some = answer("eval " + path("run") + " --classes " + path("some.txt"));
  ASSERT_EQ(some["classes"].size(), 2U);
  EXPECT_EQ(some["classes"][0]["class"], "class 3");
  EXPECT_EQ(some["images"].get<int64_t>() + some["left_out"].get<int64_t>(), 96);
  EXPECT_GT(some["left_out"], 0);
  EXPECT_GT(some["accuracy"], 0.9);
  std::ofstream(folder_ / "wrong.txt") << "nothing\n";
  EXPECT_EQ(run("eval " + path("run") + " --classes " + path("wrong.txt")), 1);
  EXPECT_TRUE(complains("'nothing'"));
}

TEST_F(TrainedModel, Predicts) {
  const json all = answer("predict " + path("run") + " " + path("0.png") + " " + path("1.png") + " " + path("2.png") + " --top 3");
  ASSERT_EQ(all.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const json& predictions = all[i]["predictions"];
    ASSERT_EQ(predictions.size(), 3U);
    EXPECT_EQ(predictions[0]["label"], labels_[i]);
    EXPECT_GE(predictions[0]["probability"], predictions[1]["probability"]);
  }
  ASSERT_EQ(run("predict " + path("run") + " " + path("0.png")), 0);
  EXPECT_TRUE(says("0.png") && says("%"));
  EXPECT_EQ(run("predict " + path("run") + " " + path("config.toml")), 1);
  EXPECT_TRUE(complains("config.toml"));
}

TEST_F(TrainedModel, ShowsItsAttention) {
  const json maps = answer("attend " + path("run") + " " + path("0.png") + " --out " + path("maps"));
  ASSERT_EQ(maps["layers"].size(), 2U);
  EXPECT_GT(maps["layers"][0]["mass"], 0);
  EXPECT_GT(maps["layers"][0]["zero_share"], 0);
  EXPECT_EQ(maps["files"].size(), 5U);  // overview, heads, two layers, rollout
  for (const json& file : maps["files"]) EXPECT_GE(hinge::data::read_image(file).width, 256);
  ASSERT_EQ(run("attend " + path("run") + " " + path("0.png") + " --out " + path("maps")), 0);
  EXPECT_TRUE(says("mass") && says("entropy") && says("zeros") && says("skipped"));
}

TEST_F(TrainedModel, IsProbed) {
  const json probed = answer("probe " + path("run") + " --data synthetic --shots 1,10 --seeds 2");
  ASSERT_EQ(probed["sets"].size(), 1U);
  EXPECT_EQ(probed["sets"][0]["name"], "synthetic");
  const json& results = probed["sets"][0]["results"];
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0]["accuracies"].size(), 2U);
  EXPECT_GT(results[1]["mean"], 0.9);
  EXPECT_EQ(run("probe " + path("run") + " --data synthetic --shots 0"), 2);
  EXPECT_TRUE(complains("--shots"));
  EXPECT_EQ(run("probe " + path("run") + " --data sinthetic"), 2);
  EXPECT_TRUE(complains("'synthetic'"));
}

TEST_F(TrainedModel, GivesItsWeightsToANewRun) {
  ASSERT_EQ(run("weights export " + path("run") + " " + path("timm.safetensors")), 0) << err_;
  ASSERT_EQ(run("weights import " + path("timm.safetensors") + " --config " + path("config.toml") + " --out " + path("imported")), 0)
      << err_;
  const json old = answer("eval " + path("run")), imported = answer("eval " + path("imported"));
  EXPECT_EQ(old["accuracy"], imported["accuracy"]);
  EXPECT_EQ(old["loss"], imported["loss"]);
  std::ofstream(folder_ / "names.txt") << "a\nb\nc\nd\n";
  ASSERT_EQ(run("weights import " + path("timm.safetensors") + " --config " + path("config.toml") + " --classes " + path("names.txt") +
                " --out " + path("named")),
            0);
  EXPECT_EQ(run("train --resume " + path("named")), 1);
  EXPECT_TRUE(complains("class 0 was 'a' and is 'class 0'"));
  fs::remove_all(folder_ / "named" / "checkpoints");
  EXPECT_EQ(run("train --resume " + path("named")), 1);
  EXPECT_TRUE(complains("imported from timm.safetensors") && complains("import them again"));
  EXPECT_EQ(run("weights import " + path("timm.safetensors") + " --config " + path("config.toml") + " --out " + path("imported")), 1);
  EXPECT_TRUE(complains("already holds a run"));
  EXPECT_EQ(run("weights import " + path("timm.safetensors") + " --config " + path("config.toml") + " --set model.width=32 --out " +
                path("wider")),
            1);
  EXPECT_TRUE(complains("another config"));
  EXPECT_FALSE(fs::exists(folder_ / "wider"));
}

TEST_F(TrainedModel, NeedsANameForEachClass) {
  fs::copy(folder_ / "run", folder_ / "damaged", fs::copy_options::recursive);
  for (const json& classes : {json::array({"one"}), json::array({"a", "b", "c", "d", "e"})}) {
    for (const auto& entry : fs::directory_iterator(folder_ / "damaged" / "checkpoints")) {
      const fs::path file = entry.path() / "checkpoint.json";
      json description = json::parse(hinge_command::read_file(file));
      description["state"]["classes"] = classes;
      description.erase("crc32c");  // of what it was
      std::ofstream(file) << description;
    }
    EXPECT_EQ(run("predict " + path("damaged") + " " + path("0.png")), 1);
    EXPECT_TRUE(complains("checkpoint.json' is damaged: it names " + std::to_string(classes.size()) + " classes, the model has 4")) << err_;
    ASSERT_EQ(run("report " + path("damaged") + " --out " + path("page.html")), 0) << err_;
    EXPECT_NE(hinge_command::read_file(folder_ / "page.html").find("classes, the model has 4"), std::string::npos);
  }
}

TEST_F(TrainedModel, AFlippedBitIsFound) {
  fs::copy(folder_ / "run", folder_ / "flipped", fs::copy_options::recursive);
  EXPECT_EQ(run("runs --verify " + path("flipped")), 0) << err_;
  EXPECT_TRUE(says("flipped: ") && says("read: sound")) << out_;
  std::vector<fs::path> checkpoints;
  for (const auto& entry : fs::directory_iterator(folder_ / "flipped" / "checkpoints")) checkpoints.push_back(entry.path());
  std::sort(checkpoints.begin(), checkpoints.end());
  ASSERT_GE(checkpoints.size(), 2u);
  const fs::path weights = checkpoints.back() / "weights.safetensors";
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 4));
  file.close();
  EXPECT_EQ(run("runs --verify " + path("flipped")), 1);
  EXPECT_TRUE(says("read: damaged")) << out_;
  EXPECT_TRUE(complains(weights.string()) && complains("is damaged: tensor '") && complains("1 of 1 runs are damaged")) << err_;
  EXPECT_EQ(run("eval " + path("flipped") + " --checkpoint latest"), 0) << err_;
  EXPECT_TRUE(complains(weights.string())) << err_;
  EXPECT_EQ(run("train --resume " + path("flipped")), 0) << err_;  // makes the damaged one again
  EXPECT_EQ(run("runs --verify " + path("flipped")), 0) << err_;
}

TEST_F(TrainedModel, WrongArgumentsAreNamed) {
  EXPECT_EQ(run("eval " + path("nowhere")), 1);
  EXPECT_TRUE(complains("is not a run"));
  EXPECT_EQ(run("eval " + path("run") + " --checkpoint first"), 2);
  EXPECT_TRUE(complains("best, latest, averaged"));
  EXPECT_EQ(run("eval " + path("run") + " --data sinthetic"), 2);
  EXPECT_TRUE(complains("'synthetic'"));
  EXPECT_EQ(run("predict " + path("run") + " " + path("0.png") + " --top none"), 2);
  EXPECT_TRUE(complains("--top"));
}

}  // namespace
