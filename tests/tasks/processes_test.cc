// Training with several processes, as users and accidents meet it: the same bits as in one, with any number of them before and after an
// interruption; one that is killed, or does not fit to the others. HINGE_COMMAND is the program's path.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "../cli/command.h"
#include "../distributed/ranks.h"
#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "../train/runs.h"
#include "support/config.h"
#include "translation/tiny.h"
#include "vision/tiny.h"

namespace hinge::tasks {
namespace {

using hinge_command::Ended;
using hinge_command::Process;
using support::mentions;
using train::last_checkpoint_bytes;
using train::read_status;

class ProcessesTest : public support::TemporaryFolderTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int64_t kSteps = 24;

  ProcessesTest() {
    if (std::string(GetParam()) == "vision") {
      vision::Config config = vision::tiny(kSteps);
      config.train.shards = 4, config.train.average = 2;
      put("tiny.toml", support::write_config(config));
    } else {
      translation::write_tiny_text(folder_.string());
      translation::Config config = translation::tiny(folder_.string(), kSteps);
      config.train.shards = 4, config.train.bleu_sentences = 5;
      put("tiny.toml", support::write_config(config));
    }
  }

  // "train CONFIG --out RUN", or "train --resume RUN", with further arguments.
  std::vector<std::string> begin(const std::string& run, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", path("tiny.toml"), "--out", path(run)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<std::string> go_on(const std::string& run) const { return {"train", "--resume", path(run)}; }

  static std::vector<std::string> on(int processes, std::vector<std::string> command) {
    if (processes > 1) command.insert(command.begin(), {"launch", "-n", std::to_string(processes), "--"});
    return command;
  }
  Ended hinge(const std::vector<std::string>& arguments) const { return Process(path("out"), path("err"), arguments).wait(); }
  void expect_done(const std::vector<std::string>& arguments) const {
    const Ended ended = hinge(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
  void expect_same(const std::string& left, const std::string& right) const {
    EXPECT_EQ(read_status(path(right)).state, "done");
    EXPECT_EQ(last_checkpoint_bytes(path(left), kSteps), last_checkpoint_bytes(path(right), kSteps)) << right;
    train::expect_same_metrics(path(left), path(right));
  }

  // The process of a rank, below the launcher's.
  static pid_t process_of(pid_t launcher, int rank) {
    const std::string id = std::to_string(launcher);
    std::ifstream children("/proc/" + id + "/task/" + id + "/children");
    for (pid_t child; children >> child;) {
      const std::string environment = hinge_command::read_file("/proc/" + std::to_string(child) + "/environ");
      if (environment.find(std::string(1, '\0') + "RANK=" + std::to_string(rank) + std::string(1, '\0')) != std::string::npos) return child;
    }
    return 0;
  }
  // Waits until the run has a checkpoint.
  void wait_for_checkpoint(Process& process, const std::string& run) const {
    while (!process.ended() && !(train::is_run(path(run)) && train::latest_checkpoint(path(run)).found))
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
};
INSTANTIATE_TEST_SUITE_P(Tasks, ProcessesTest, ::testing::Values("vision", "translation"), [](const auto& given) { return given.param; });

TEST_P(ProcessesTest, EveryPowerOfTwoGivesTheSameBits) {
  expect_done(begin("one"));
  expect_done(on(2, begin("two")));
  expect_same("one", "two");
  expect_done(on(4, begin("four")));
  expect_same("one", "four");
  expect_done(on(2, begin("two of two", {"--set", "train.workers=2"})));
  expect_same("one", "two of two");
}

TEST_P(ProcessesTest, AKilledProcessEndsTheOthersAndIsNamed) {
  for (const int killed : {0, 1}) {
    const std::string run = "killed" + std::to_string(killed);
    Process process(path("out"), path("err"), on(4, begin(run, {"--set", "optim.steps=100000"})));
    wait_for_checkpoint(process, run);
    ASSERT_FALSE(process.ended()) << process.wait().err;
    const pid_t rank = process_of(process.id(), killed);
    ASSERT_GT(rank, 0);
    ASSERT_EQ(::kill(rank, SIGKILL), 0);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, 1);
    EXPECT_TRUE(mentions(ended.err, {"hinge launch: rank " + std::to_string(killed) + " was killed by signal 9"}));
    for (const int other : {2, 3, 1 - killed})
      EXPECT_TRUE(mentions(ended.err, {"[" + std::to_string(other) + "] hinge: rank " + std::to_string(killed) + " (host "}));
    EXPECT_FALSE(train::is_training(path(run)));
    EXPECT_EQ(read_status(path(run)).state, killed == 0 ? "running" : "failed");
  }
}

TEST_P(ProcessesTest, StoppedItGoesOnWithOtherNumbersToTheSameBits) {
  expect_done(begin("one"));
  Process process(path("out"), path("err"), on(4, begin("parts")));
  wait_for_checkpoint(process, "parts");
  process.send(SIGINT);
  const Ended ended = process.wait();
  if (ended.code != 0) {  // it may have been at its end
    EXPECT_EQ(ended.code, 130) << ended.err;
    EXPECT_EQ(read_status(path("parts")).state, "stopped");
    expect_done(on(2, go_on("parts")));
  }
  expect_same("one", "parts");
}

TEST_P(ProcessesTest, KilledItGoesOnWithFewerToTheSameBits) {
  expect_done(begin("one"));
  Process process(path("out"), path("err"), on(2, begin("again", {"--or-resume"})));
  wait_for_checkpoint(process, "again");
  if (const pid_t rank = process_of(process.id(), 1); rank > 0) ::kill(rank, SIGKILL);
  process.wait();
  expect_done(begin("again", {"--or-resume"}));
  expect_same("one", "again");
}

// ---- teams that share the tokens of a sequence

class TeamsTest : public ProcessesTest {
 protected:
  // Without dropout of weights.
  TeamsTest() {
    if (std::string(GetParam()) == "vision") {
      vision::Config config = vision::tiny(kSteps);
      config.model.attention.dropout.reset();
      config.model.image_size = config.data.synthetic_size = 12;  // 9 tokens
      config.train.shards = 2;
      put("tiny.toml", support::write_config(config));
    } else {
      translation::Config config = translation::tiny(folder_.string(), kSteps);
      config.model.attention.dropout.reset();
      config.train.shards = 2, config.train.bleu_sentences = 5;
      put("tiny.toml", support::write_config(config));
    }
  }
  static std::vector<std::string> teams_of(int64_t size, std::vector<std::string> command) {
    command.insert(command.end(), {"--set", fmt::format("train.sequence_parallel={}", size)});
    return command;
  }
  // Sums of tokens in another order, through 24 steps of Adam: at most kFar apart.
  static constexpr double kFar = 2e-3;
};
INSTANTIATE_TEST_SUITE_P(Tasks, TeamsTest, ::testing::Values("vision", "translation"), [](const auto& given) { return given.param; });

TEST_P(TeamsTest, TheLossesAreThoseOfOneProcess) {
  expect_done(begin("one"));
  for (const auto& [processes, size] : {std::pair(2, 2), std::pair(4, 2), std::pair(4, 4)}) {
    const std::string run = fmt::format("{} in teams of {}", processes, size);
    expect_done(on(processes, teams_of(size, begin(run))));
    EXPECT_EQ(read_status(path(run)).state, "done");
    train::expect_close_metrics(path("one"), path(run), kFar);
  }
}

TEST_P(TeamsTest, StoppedItGoesOnWithOneProcessAndInTeams) {
  expect_done(begin("one"));
  for (const int64_t then : {1, 2}) {
    const std::string run = fmt::format("then {}", then);
    Process process(path("out"), path("err"), on(2, teams_of(2, begin(run))));
    wait_for_checkpoint(process, run);
    process.send(SIGINT);
    const Ended ended = process.wait();
    EXPECT_TRUE(ended.code == 0 || ended.code == 130) << ended.err;
    if (ended.code != 0) expect_done(on(static_cast<int>(then), teams_of(then, go_on(run))));
    train::expect_close_metrics(path("one"), path(run), kFar);
  }
}

TEST_P(TeamsTest, AnEvaluationInTeamsHasTheSameNumbers) {
  expect_done(begin("one"));
  const bool vision = std::string(GetParam()) == "vision";
  const auto evaluated = [&](int processes, int64_t size) {
    std::vector<std::string> command = {"eval", path("one"), "--json", path("eval.json")};
    if (!vision) command.insert(command.end(), {"--bleu", "--split", "valid,train"});
    expect_done(on(processes, teams_of(size, command)));
    return nlohmann::json::parse(hinge_command::read_file(path("eval.json")));
  };
  const nlohmann::json alone = evaluated(1, 1);
  const std::vector<std::string> counts =
      vision ? std::vector<std::string>{"images"} : std::vector<std::string>{"items", "tokens", "left_out"};
  for (const auto& [processes, size] : {std::pair(2, 1), std::pair(2, 2), std::pair(4, 2)}) {
    const nlohmann::json shared = evaluated(processes, size);
    for (const std::string& count : counts) EXPECT_EQ(shared[count], alone[count]);
    EXPECT_NEAR(shared["loss"].get<double>(), alone["loss"].get<double>(), 1e-5);
    const char* accuracy = vision ? "accuracy" : "token_accuracy";
    EXPECT_NEAR(shared[accuracy].get<double>(), alone[accuracy].get<double>(), 0.02);  // an image on the border
    if (vision) continue;
    for (const char* same : {"bleu", "translated_tokens"}) EXPECT_EQ(shared[same], alone[same]);
    EXPECT_NEAR(shared["splits"]["train"]["loss"].get<double>(), alone["splits"]["train"]["loss"].get<double>(), 1e-5);
  }
}

TEST_P(TeamsTest, WhatDoesNotGoIsNamed) {
  const auto refused = [&](int processes, const std::vector<std::string>& more) {
    const Ended ended = hinge(on(processes, begin("refused", more)));
    EXPECT_NE(ended.code, 0);
    EXPECT_FALSE(train::is_run(path("refused")));
    return ended.err;
  };
  const std::string two = "train.sequence_parallel=2";
  EXPECT_TRUE(mentions(refused(1, {"--set", two}), {"train.sequence_parallel 2 needs 2 processes", "hinge launch -n 2"}));
  EXPECT_TRUE(mentions(refused(2, {"--set", "train.sequence_parallel=4"}), {"train.sequence_parallel 4 needs 4 processes", "got 2"}));
  EXPECT_TRUE(mentions(refused(2, {"--set", "train.sequence_parallel=3"}), {"train.sequence_parallel must be a power of two, got 3"}));
  EXPECT_TRUE(mentions(refused(2, {"--set", two, "--set", "model.attention.dropout=0.1"}),
                       {"attention.dropout is 0.1", "train.sequence_parallel"}));
  EXPECT_TRUE(mentions(refused(2, {"--set", two, "--set", "train.workers=2"}), {"train.workers is 2", "train.sequence_parallel 2"}));
}

// ---- processes that share a text

class TextTest : public TeamsTest {};
INSTANTIATE_TEST_SUITE_P(Text, TextTest, ::testing::Values("translation"), [](const auto& given) { return given.param; });

TEST_P(TextTest, IsTranslatedInTeamsAsByOneProcess) {
  expect_done(begin("one", {"--set", "data.document_tokens=40", "--set", "optim.steps=200"}));
  put("text.en", "one two three four five six\nseven\n\nzero\nfour four one six seven three zero two\n");
  for (const std::vector<std::string>& how : {std::vector<std::string>{}, {"--document"}, {"--document", "--n-best", "2", "--beam", "3"}}) {
    const auto translated = [&](int processes) {
      std::vector<std::string> command = {"translate", path("one"), path("text.en"), "--out", path("text.de")};
      command.insert(command.end(), how.begin(), how.end());
      expect_done(on(processes, command));
      const std::string text = hinge_command::read_file(path("text.de"));
      std::filesystem::remove(path("text.de"));
      return text;
    };
    const std::string alone = translated(1);
    EXPECT_GT(alone.size(), 20u);
    for (const int processes : {2, 4}) EXPECT_EQ(translated(processes), alone);
  }
  const Ended refused = hinge(on(2, {"translate", path("one"), path("text.en")}));
  EXPECT_NE(refused.code, 0);
  EXPECT_TRUE(mentions(refused.err, {"hinge translate takes files and --out"}));
}

// Rank 1 reads the bad line.
TEST_P(TextTest, ABadLineEndsAllWithItsMessage) {
  std::string text = hinge_command::read_file(path("train.en"));
  size_t line = 0;
  for (int i = 0; i < 70; ++i) line = text.find('\n', line) + 1;
  text[line] = '\xff';
  put("train.en", text);
  const Ended ended = hinge(on(2, begin("bad")));
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(mentions(ended.err, {"[0] hinge: ", "[1] hinge: ", path("train.en:71: ")}));
  EXPECT_FALSE(train::is_run(path("bad")));
  expect_done(begin("alone", {"--set", "data.on_error=skip"}));
  expect_done(on(2, begin("good", {"--set", "data.on_error=skip"})));
  expect_same("alone", "good");
}

// ---- processes that do not fit together, started by hand

class RanksTest : public ProcessesTest {
 protected:
  // Starts ranks with these arguments, in these folders if there are any, and waits for all.
  std::vector<Ended> run(const std::vector<std::vector<std::string>>& arguments, const std::vector<std::string>& folders = {}) const {
    const distributed::HeldPort port;
    std::vector<std::unique_ptr<Process>> processes;
    for (size_t rank = 0; rank < arguments.size(); ++rank)
      processes.push_back(
          std::make_unique<Process>(path("out" + std::to_string(rank)), path("err" + std::to_string(rank)), arguments[rank], [&, rank] {
            if (!folders.empty() && ::chdir(path(folders[rank]).c_str()) != 0) ::_exit(126);
            ::setenv("RANK", std::to_string(rank).c_str(), 1);
            ::setenv("WORLD_SIZE", std::to_string(arguments.size()).c_str(), 1);
            ::setenv("MASTER_ADDR", "localhost", 1);
            ::setenv("MASTER_PORT", std::to_string(port.number()).c_str(), 1);
          }));
    std::vector<Ended> ends;
    for (const auto& process : processes) ends.push_back(process->wait());
    return ends;
  }
};
INSTANTIATE_TEST_SUITE_P(Tasks, RanksTest, ::testing::Values("vision", "translation"), [](const auto& given) { return given.param; });

TEST_P(RanksTest, AnotherConfigIsRefusedWithBothValues) {
  for (const Ended& ended : run({begin("run"), begin("run", {"--set", "optim.lr=0.5"})})) {
    EXPECT_NE(ended.code, 0);
    EXPECT_TRUE(mentions(ended.err, {"rank 1", "optim.lr", "0.5", std::string(GetParam()) == "vision" ? "0.003" : "0.005", "rank 0"}));
  }
  EXPECT_FALSE(train::is_run(path("run")));
}

// The same config, relative to two folders.
TEST_P(RanksTest, OtherDataAreRefusedWithBothValues) {
  if (std::string(GetParam()) == "vision") {
    for (const auto& [folder, x, y] : {std::tuple("a", 6, 6), std::tuple("b", 7, 5)})
      vision::write_tiny_images(path(folder + std::string("/images/train/x")), x),
          vision::write_tiny_images(path(folder + std::string("/images/train/y")), y);
    vision::Config config = vision::tiny_of_files("images", "train[:50%]", kSteps);
    config.optim.batch = 4;
    put("tiny.toml", support::write_config(config));
  } else {
    for (const char* folder : {"a", "b"}) std::filesystem::create_directories(path(folder)), translation::write_tiny_text(path(folder));
    std::ofstream(path("b/train.en"), std::ios::app) << "one two\n";
    std::ofstream(path("b/train.de"), std::ios::app) << "eins zwei\n";
    put("tiny.toml", support::write_config(translation::tiny(".", kSteps)));
  }
  const std::vector<Ended> ends = run({begin("run"), begin("run")}, {"a", "b"});
  for (const Ended& ended : ends) {
    EXPECT_NE(ended.code, 0);
    EXPECT_TRUE(mentions(ended.err, {"the data of rank 1 are not those of rank 0", " instead of "}));
  }
}

TEST_P(RanksTest, NumbersThatDoNotGoAreNamed) {
  for (const Ended& ended : run({begin("three"), begin("three"), begin("three")}))
    EXPECT_TRUE(mentions(ended.err, {"the number of processes must be a power of two, got 3"}));
  const std::vector<std::string> few = begin("few", {"--set", "train.shards=1", "--set", "train.workers=0"});
  for (const Ended& ended : run({few, few})) EXPECT_TRUE(mentions(ended.err, {"2 processes", "train.shards 1"}));
}

}  // namespace
}  // namespace hinge::tasks
