// hinge sweep as a user runs it: on synthetic images, with points that finish, diverge and fail, interrupted and killed, by two processes
// at once.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "command.h"

namespace {

using hinge::support::mentions;
using hinge_command::Ended;
using hinge_command::Process;
using nlohmann::json;
namespace fs = std::filesystem;

const char* const kBase = R"([model]
image_size = 8
channels = 1
patch = 4
width = 16
depth = 1
heads = 2
ffn.width = 16
classes = 0
[data]
format = "synthetic"
synthetic_count = 64
synthetic_classes = 2
synthetic_size = 8
synthetic_channels = 1
[optim]
batch = 16
steps = 20
[train]
log_steps = 5
eval_every = 5
checkpoint_every = 1
)";

const char* const kSweep = R"(title = "Small"
base = "base.toml"
record = ["train/gradient_norm"]
[axes.h]
key = "model.attention.h"
values = ["relu", "softmax"]
[axes.lr]
key = "optim.lr"
values = [1e-3, 1e18]
[axes.seed]
key = "train.seed"
values = [0, 1]
[axes.heads]
key = "model.heads"
values = [3]
[measure]
test = "eval --checkpoint latest --split test"
)";

class SweepCommandTest : public hinge::support::TemporaryFolderTest {
 protected:
  SweepCommandTest() {
    put("base.toml", kBase);
    sweep("[[grid]]\naxes = [\"h\", \"seed\"]\nset = { \"optim.lr\" = 1e-3 }\n");
  }
  void sweep(const std::string& points) const { put("small.toml", kSweep + points); }

  std::vector<std::string> words(const std::string& folder, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"sweep", path("small.toml"), "--out", path(folder)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended run(const std::string& folder, const std::vector<std::string>& more = {}) const {
    return Process(path("out"), path("err"), words(folder, more)).wait();
  }

  // By the text of its point.
  std::map<std::string, json> results(const std::string& folder) const {
    std::map<std::string, json> all;
    std::istringstream lines(content(folder + "/small.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json result = json::parse(line);
      EXPECT_TRUE(all.emplace(result.at("point").dump(), result).second) << "twice: " << line;
    }
    return all;
  }
  static json without_times(json result) {
    for (const char* key : {"seconds", "core_hours", "finished"}) result.erase(key);
    return result;
  }
  // The weights of the runs, by their folder's name.
  std::map<std::string, std::string> weights(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const auto& run : fs::directory_iterator(path(folder)))
      if (run.is_directory())
        for (const auto& file : fs::recursive_directory_iterator(run.path()))
          if (file.path().filename() == "weights.safetensors") all[run.path().filename().string()] = hinge_command::read_file(file.path());
    return all;
  }
  size_t trainings(const std::string& folder) const {
    size_t count = 0;
    for (const auto& log : fs::directory_iterator(path(folder) + "/logs")) {
      const std::string text = hinge_command::read_file(log.path());
      for (size_t at = text.find("Training into"); at != std::string::npos; at = text.find("Training into", at + 1)) ++count;
    }
    return count;
  }
  bool has_checkpoint(const std::string& folder) const {
    std::error_code ignored;
    for (fs::recursive_directory_iterator at(path(folder), ignored), end; !ignored && at != end; at.increment(ignored))
      if (at->path().filename().string().starts_with("step-")) return true;
    return false;
  }
  void wait_for_checkpoint(Process& process, const std::string& folder) const {
    while (!process.ended() && !has_checkpoint(folder)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void expect_same(const std::string& left, const std::string& right) const {
    const std::map<std::string, json> a = results(left), b = results(right);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [point, result] : a) EXPECT_EQ(without_times(result), without_times(b.at(point)));
    EXPECT_EQ(weights(left), weights(right));
  }
};

TEST_F(SweepCommandTest, EachPointIsTrainedAndMeasuredOnce) {
  const Ended first = run("runs");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(mentions(first.out, {"Done: 4 done, 0 diverged, 0 failed", path("runs/small.jsonl")}));
  EXPECT_TRUE(mentions(first.err, {"h=relu seed=0: started", "[4/4] ", "eval/accuracy"}));
  const std::map<std::string, json> all = results("runs");
  ASSERT_EQ(all.size(), 4u);
  const json& one = all.at(R"({"h":"relu","seed":1})");
  EXPECT_EQ(one.at("state"), "done");
  EXPECT_EQ(one.at("steps"), 20);
  EXPECT_GT(one.at("parameters"), 1000);
  EXPECT_GT(one.at("seconds").get<double>(), 0);
  EXPECT_GT(one.at("core_hours").get<double>(), 0);
  EXPECT_EQ(one.at("scores").at("eval/accuracy").size(), 1u);
  EXPECT_EQ(one.at("scores").at("train/gradient_norm").size(), 4u);
  EXPECT_FALSE(one.at("scores").contains("train/loss"));
  EXPECT_EQ(one.at("measures").at("test.images"), 64);
  EXPECT_NEAR(one.at("measures").at("test.loss").get<double>(), one.at("scores").at("eval/loss").at(0).at(1).get<double>(), 1e-5);
  EXPECT_NE(one.at("config"), all.at(R"({"h":"relu","seed":0})").at("config"));
  EXPECT_TRUE(mentions(one.at("machine").get<std::string>(), {"1 thread"}));
  // 20 steps of 16 images; three passes over products of 2 flops: the patches alone are 4 x 16 x 16.
  EXPECT_GT(one.at("flops").get<double>(), 20 * 16 * 3 * 2 * 4 * 16 * 16);

  const std::string text = content("runs/small.jsonl");
  const Ended second = run("runs");
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(trainings("runs"), 4u);
  for (const auto& entry : fs::directory_iterator(path("runs")))
    if (entry.is_directory()) fs::remove_all(entry.path());
  const Ended third = run("runs");
  EXPECT_EQ(third.code, 0);
  EXPECT_EQ(third.err, "") << "the runs' folders are not needed any more";
  EXPECT_EQ(content("runs/small.jsonl"), text);
}

TEST_F(SweepCommandTest, APointThatDivergesIsAResultAndOneThatFailsIsTriedAgain) {
  sweep("[[grid]]\naxes = [\"lr\"]\n[[point]]\nheads = 3\n");
  const Ended first = run("runs");
  EXPECT_EQ(first.code, 1);
  EXPECT_TRUE(mentions(first.out, {"1 done, 1 diverged, 1 failed"}));
  EXPECT_TRUE(mentions(first.err, {"lr=1e+18: diverged, the loss became", "heads=3: failed", "log: "}));
  const std::map<std::string, json> all = results("runs");
  EXPECT_EQ(all.at(R"({"lr":1e+18})").at("state"), "diverged");
  EXPECT_FALSE(mentions(all.at(R"({"lr":1e+18})").at("message").get<std::string>(), {"--resume"}));
  EXPECT_EQ(all.at(R"({"heads":3})").at("state"), "failed");
  EXPECT_TRUE(mentions(all.at(R"({"heads":3})").at("message").get<std::string>(), {"heads"}));
  const Ended second = run("runs");
  EXPECT_EQ(second.code, 1);
  EXPECT_TRUE(mentions(second.err, {"heads=3: started"}));
  EXPECT_FALSE(mentions(second.err, {"lr="}));
  EXPECT_EQ(results("runs").size(), 3u);
}

TEST_F(SweepCommandTest, AMeasureThatFailsIsTheFailureOfItsPoint) {
  sweep("wrong = \"eval --split none\"\n[[point]]\nseed = 0\n");
  const Ended ended = run("runs");
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(mentions(results("runs").at(R"({"seed":0})").at("message").get<std::string>(), {"measure wrong: ", "none"}));
  sweep("[[point]]\nseed = 0\n");
  EXPECT_EQ(run("runs").code, 0);
  EXPECT_EQ(trainings("runs"), 1u) << "the run was there already";
}

TEST_F(SweepCommandTest, KilledOrStoppedItGoesOnToTheSameWeights) {
  put("base.toml", std::string(kBase).replace(std::string(kBase).find("steps = 20"), 10, "steps = 300"));
  const Ended undisturbed = run("undisturbed", {"--jobs", "2"});
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.err;
  for (const int signal : {SIGKILL, SIGINT, SIGTERM}) {
    const std::string folder = "runs-" + std::to_string(signal);
    Process process(path("out"), path("err"), words(folder, {"--jobs", "2"}));
    wait_for_checkpoint(process, folder);
    process.send(signal);
    const Ended ended = process.wait();
    if (signal == SIGKILL) {
      EXPECT_EQ(ended.signal, SIGKILL);
    } else {
      EXPECT_EQ(ended.code, 130) << ended.err;
      EXPECT_TRUE(mentions(ended.out, {"Stopped: ", "left. Continue with the same command"}));
    }
    const Ended last = run(folder, {"--jobs", "2"});
    ASSERT_EQ(last.code, 0) << last.err;
    EXPECT_TRUE(mentions(last.err, {": resumed"}));
    EXPECT_EQ(trainings(folder), 4u) << "no run was begun twice";
    expect_same("undisturbed", folder);
  }
}

TEST_F(SweepCommandTest, TwoProcessesDivideThePoints) {
  ASSERT_EQ(run("alone").code, 0);
  Process one(path("out1"), path("err1"), words("runs", {"--jobs", "1"})), two(path("out2"), path("err2"), words("runs", {"--jobs", "1"}));
  const Ended first = one.wait(), second = two.wait();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_TRUE(mentions(first.out, {"4 done"}));
  EXPECT_TRUE(mentions(second.out, {"4 done"}));
  EXPECT_EQ(trainings("runs"), 4u);
  for (const auto& left : fs::directory_iterator(path("runs/claims"))) EXPECT_EQ(left.path().filename(), ".lock");
  expect_same("alone", "runs");
}

TEST_F(SweepCommandTest, PartsMergeByPuttingTheirLinesTogether) {
  ASSERT_EQ(run("one", {"--points", "1/3"}).code, 0);
  ASSERT_EQ(run("two", {"--points", "2/3"}).code, 0);
  EXPECT_EQ(results("one").size(), 2u);
  EXPECT_EQ(results("two").size(), 1u);
  put("all/small.jsonl", content("two/small.jsonl") + content("one/small.jsonl") + content("two/small.jsonl"));
  const Ended rest = run("all");
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(trainings("all"), 1u);
  ASSERT_EQ(run("alone").code, 0);
  EXPECT_EQ(results("all").size(), 4u);
  for (const auto& [point, result] : results("alone")) EXPECT_EQ(without_times(result), without_times(results("all").at(point)));
}

TEST_F(SweepCommandTest, AChangedConfigIsAnError) {
  ASSERT_EQ(run("runs").code, 0);
  sweep("[[grid]]\naxes = [\"h\", \"seed\"]\nh = [\"softmax\"]\nset = { \"optim.lr\" = 2e-3 }\n");
  const Ended refused = run("runs");
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(mentions(refused.err, {path("runs/small.jsonl"), "2 of 4 results", "h=softmax seed=0", "--drop-stale"}));
  const Ended dropped = run("runs", {"--drop-stale"});
  EXPECT_EQ(dropped.code, 0) << dropped.err;
  EXPECT_EQ(trainings("runs"), 6u);
  EXPECT_EQ(results("runs").size(), 4u);
}

TEST_F(SweepCommandTest, WhatAnotherSweepHasMeasuredIsNotRunAgain) {
  ASSERT_EQ(run("runs").code, 0);
  const std::string points = "[[grid]]\naxes = [\"h\", \"lr\", \"seed\"]\nlr = 1e-3\n";  // the same configs by other names
  const auto put_sweep = [&](const std::string& measure) {
    std::string text = kSweep + points;
    text.replace(text.find("test = "), 4, measure).insert(0, "reuse = [\"runs/small.jsonl\"]\n");
    put("small.toml", text);
  };
  put_sweep("other");
  const Ended other = run("other", {"--dry-run"});
  EXPECT_TRUE(mentions(other.out, {"4 points, 4 to run"})) << "none has this measure";
  put_sweep("test");
  const Ended again = run("again");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(mentions(again.out, {"Done: 4 done"}));
  EXPECT_FALSE(fs::exists(path("again/logs")));
  json expected = results("runs").at(R"({"h":"relu","seed":1})"), found = results("again").at(R"({"h":"relu","lr":0.001,"seed":1})");
  expected.erase("point"), found.erase("point");
  EXPECT_EQ(found, expected);
  const Ended apart = run("apart", {"--results", path("r.jsonl")});
  EXPECT_EQ(apart.code, 0) << apart.err;
  EXPECT_EQ(content("apart/results.jsonl"), content("r.jsonl"));
  EXPECT_TRUE(mentions(run("changed", {"--set", "optim.steps=10", "--dry-run"}).out, {"4 points, 4 to run"}));
}

TEST_F(SweepCommandTest, KeysAndResultsCanBeGivenOnTheCommandLine) {
  sweep("[[grid]]\naxes = [\"seed\"]\nset = { \"optim.lr\" = 1e-3 }\n");
  const Ended ended = run("runs", {"--set", "optim.steps=5", "--set", "optim.lr=2e-3", "--results", path("elsewhere/r.jsonl")});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(mentions(content("elsewhere/r.jsonl"), {"\"steps\":5"}));
  EXPECT_FALSE(fs::exists(path("runs/small.jsonl")));
  EXPECT_TRUE(mentions(run("runs", {"--results", path("elsewhere/r.jsonl")}).err, {"2 of 2 results", "another config"}));
}

TEST_F(SweepCommandTest, MistakesAreToldBeforeAnythingRuns) {
  sweep("[[grid]]\naxes = [\"seed\"]\nset = { \"optim.lrr\" = 1 }\n");
  const Ended key = run("runs");
  EXPECT_EQ(key.code, 1);
  EXPECT_TRUE(mentions(key.err, {path("small.toml"), "point seed=0", "unknown key 'optim.lrr'", "did you mean 'optim.lr'?"}));
  EXPECT_FALSE(fs::exists(path("runs")));
  for (const char* points : {"3", "0/2", "3/2", "a/b"}) {
    const Ended part = run("runs", {"--points", points});
    EXPECT_EQ(part.code, 2);
    EXPECT_TRUE(mentions(part.err, {"--points"}));
  }
  EXPECT_TRUE(mentions(Process(path("out"), path("err"), {"sweep", path("none.toml")}).wait().err, {"none.toml", "No such file"}));
}

}  // namespace
