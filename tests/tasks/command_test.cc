// hinge train as users and accidents meet it: killed at any moment, interrupted, on a full disk, with wrong keys. HINGE_COMMAND is the
// program's path.
#include "../cli/command.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "../support/errors.h"
#include "../support/quick.h"
#include "../support/temporary_folder.h"
#include "../train/runs.h"
#include "support/config.h"
#include "support/jsonl.h"
#include "train/schedule.h"
#include "translation/tiny.h"
#include "vision/tiny.h"

namespace hinge::tasks {
namespace {

using support::mentions;
using train::CheckpointSearch;
using train::config_path;
using train::expect_same_metrics;
using train::is_run;
using train::last_checkpoint_bytes;
using train::latest_checkpoint;
using train::metrics_path;
using train::read_status;
namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

using hinge_command::Ended;

class CommandTest : public support::TemporaryFolderTest {
 protected:
  // A started hinge.
  struct Process : hinge_command::Process {
    Process(
        const CommandTest& test, const std::vector<std::string>& arguments, const std::function<void()>& at_start = [] {})
        : hinge_command::Process(test.path("out"), test.path("err"), arguments, at_start) {}
  };

  CommandTest() { put("tiny.toml", support::write_config(config())); }
  explicit CommandTest(const std::string& task) : CommandTest() {
    if (task == "vision") return;
    translation::write_tiny_text(folder_.string());
    put("tiny.toml", support::write_config(translation::tiny(folder_.string(), kSteps)));
  }
  static vision::Config config() {
    vision::Config config = vision::tiny(kSteps);
    config.train.checkpoint_every = 0.5;  // 2 steps
    return config;
  }
  Ended hinge(
      const std::vector<std::string>& arguments, const std::function<void()>& at_start = [] {}) const {
    return Process(*this, arguments, at_start).wait();
  }
  // What a user would type to begin or to go on.
  std::vector<std::string> begin(const std::string& run) const { return {"train", path("tiny.toml"), "--out", path(run)}; }
  std::vector<std::string> go_on(const std::string& run) const {
    return is_run(path(run)) ? std::vector<std::string>{"train", "--resume", path(run)} : begin(run);
  }
  // An undisturbed run, and how long it takes.
  double undisturbed() const {
    const double started = now();
    const Ended ended = hinge(begin("undisturbed"));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return now() - started;
  }
  // From another folder than the tests'.
  Ended hinge_in(const std::string& folder, const std::vector<std::string>& arguments) const {
    return hinge(arguments, [&] {
      if (::chdir(folder.c_str()) != 0) ::_exit(126);
    });
  }
  void expect_as_undisturbed(const std::string& run) const {
    EXPECT_EQ(read_status(path(run)).state, "done");
    EXPECT_EQ(last_checkpoint_bytes(path(run), kSteps), last_checkpoint_bytes(path("undisturbed"), kSteps));
    expect_same_metrics(path("undisturbed"), path(run));
  }
  bool saving(const std::string& run) const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path(run + "/checkpoints"), ignored))
      if (entry.path().filename().string().starts_with(".new-")) return true;
    return false;
  }
  // Looks often enough to see most saves, and leaves the processor to the process.
  static void look_again_soon() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }
  void wait_for_save(Process& process, const std::string& run) const {
    while (!process.ended() && !saving(run)) look_again_soon();
  }

  static constexpr int64_t kSteps = 60;
};

// What holds for runs of every task.
class AnyRunTest : public CommandTest, public ::testing::WithParamInterface<const char*> {
 protected:
  AnyRunTest() : CommandTest(GetParam()) {}
  static bool of_vision() { return std::string(GetParam()) == "vision"; }
};
INSTANTIATE_TEST_SUITE_P(Tasks, AnyRunTest, ::testing::Values("vision", "translation"), [](const auto& given) { return given.param; });

TEST_P(AnyRunTest, KilledAtAnyMomentItEndsWithTheSameBits) {
  const int wanted_kills = support::quick() ? 4 : 24, wanted_in_saves = wanted_kills / 2;
  const double whole = undisturbed();
  std::mt19937 random(20230914);
  int kills = 0, in_saves = 0, runs = 1;
  std::string run = "run-1";
  for (int attempt = 0; attempt < 100 && (kills < wanted_kills || in_saves < wanted_in_saves); ++attempt) {
    Process process(*this, go_on(run));
    const double started = now();
    const bool in_save = attempt % 2 == 0;
    const double moment = std::uniform_real_distribution(0.0, 0.7 * whole)(random);
    if (in_save) {
      int saves = 0;
      const int wanted = std::uniform_int_distribution(1, 3)(random);
      for (bool before = false; !process.ended() && saves < wanted;) {
        const bool is = saving(run);
        saves += is && !before;
        before = is;
        look_again_soon();
      }
    } else {
      while (!process.ended() && now() < started + moment) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process.send(SIGKILL);
    const Ended ended = process.wait();
    if (ended.code == 0) {
      // The run was done before it was killed. Another one.
      expect_as_undisturbed(run);
      run = "run-" + std::to_string(++runs);
      continue;
    }
    ASSERT_EQ(ended.signal, SIGKILL) << ended.err;
    ++kills, in_saves += in_save;
  }
  EXPECT_GE(kills, wanted_kills);
  EXPECT_GE(in_saves, wanted_in_saves);
  const Ended last = hinge(go_on(run));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(mentions(last.out, {of_vision() ? "Done: accuracy" : "Done: validation loss", path(run)}));
  expect_as_undisturbed(run);
  for (const auto& entry : fs::directory_iterator(path(run + "/checkpoints")))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

TEST_P(AnyRunTest, CtrlCSavesAndSaysHowToGoOn) {
  undisturbed();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string run = "run-" + std::to_string(signal);
    Process process(*this, begin(run));
    wait_for_save(process, run);
    process.send(signal);
    const Ended ended = process.wait();
    ASSERT_EQ(ended.code, 130) << ended.err;
    EXPECT_TRUE(mentions(ended.err, {"stopping, and saving", "Ctrl-C again"}));
    EXPECT_TRUE(mentions(ended.out, {"Stopped after step", "of 60", "% of the time waiting for ", "hinge train --resume " + path(run)}));
    EXPECT_EQ(read_status(path(run)).state, "stopped");
    EXPECT_LT(read_status(path(run)).step, kSteps);
    EXPECT_EQ(hinge(go_on(run)).code, 0);
    expect_as_undisturbed(run);
  }
}

TEST_P(AnyRunTest, SaysHowLongItWaitedForData) {
  undisturbed();
  const auto expect_share = [&](double share) {
    EXPECT_TRUE(of_vision() ? share >= 0 : share > 0) << share;  // a translation makes its batches itself
    EXPECT_LE(share, 1);
  };
  expect_share(read_status(path("undisturbed")).values.at("waiting_share"));
  int lines = 0;
  for (const support::MetricRecord& record : support::read_metrics(metrics_path(path("undisturbed"))))
    if (!std::isnan(record.number("train/loss"))) expect_share(record.number("train/waiting_share")), ++lines;
  EXPECT_EQ(lines, 12);
}

TEST_F(CommandTest, WhatIsIgnoredAtTheStartDoesNotStopIt) {
  for (const int signal : {SIGHUP, SIGINT}) {  // as nohup starts it, and as a script starts what runs in its background
    const std::string run = "run-" + std::to_string(signal);
    Process process(*this, begin(run), [&] { std::signal(signal, SIG_IGN); });
    wait_for_save(process, run);
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(mentions(ended.out, {"Done: "}));
  }
  // Nor while it is stopping.
  Process process(*this, begin("run"), [] { std::signal(SIGINT, SIG_IGN); });
  wait_for_save(process, "run");
  process.send(SIGTERM);
  process.send(SIGINT);
  EXPECT_EQ(process.wait().code, 130);
  EXPECT_EQ(read_status(path("run")).state, "stopped");
}

TEST_P(AnyRunTest, AFullDiskLosesNothing) {
  undisturbed();
  {
    Process process(*this, begin("run"));
    wait_for_save(process, "run");
    process.send(SIGINT);
    ASSERT_EQ(process.wait().code, 130);
  }
  const CheckpointSearch before = latest_checkpoint(path("run"));
  ASSERT_TRUE(before.found);
  const auto weights = fs::file_size(before.found->file("weights.safetensors"));
  // No file may grow beyond half of the weights: the next save fails in its
  // middle.
  const Ended ended = hinge(go_on("run"), [&] {
    const rlimit limit{weights / 2, weights / 2};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);  // which would end it: the program itself must ignore it
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(mentions(ended.err, {"hinge: cannot write", path("run") + "/checkpoints", "File too large"}));
  EXPECT_EQ(read_status(path("run")).state, "failed");
  const CheckpointSearch after = latest_checkpoint(path("run"));
  ASSERT_TRUE(after.found);
  EXPECT_EQ(after.found->step, before.found->step);
  EXPECT_TRUE(after.skipped.empty());
  EXPECT_EQ(hinge(go_on("run")).code, 0);
  expect_as_undisturbed("run");
}

TEST_P(AnyRunTest, ADamagedStateIsNamed) {
  std::vector<std::string> arguments = begin("run");
  arguments.insert(arguments.end(), {"--set", "optim.steps=8"});
  ASSERT_EQ(hinge(arguments).code, 0);
  const std::string file = latest_checkpoint(path("run")).found->file("checkpoint.json");
  nlohmann::json good = nlohmann::json::parse(support::read_file(file));
  good.erase("crc32c");  // as earlier versions wrote it: of what has a checksum, a change is found before it is used
  const auto expect_damaged = [&](const nlohmann::json& description, const std::string& problem) {
    support::AtomicFile(file).commit(description.dump());
    const Ended ended = hinge({"train", "--resume", path("run"), "--set", "optim.steps=12"});
    EXPECT_EQ(ended.code, 1) << ended.signal;
    EXPECT_TRUE(mentions(ended.err, {"'" + file + "' is damaged: ", problem}));
  };
  for (const char* key : {"best_step", "score", "evaluated", of_vision() ? "classes" : "vocabulary"}) {
    nlohmann::json without = good, wrong = good;
    ASSERT_EQ(without["state"].erase(key), 1u) << key;
    expect_damaged(without, "key '" + std::string(key) + "' not found");
    wrong["state"][key] = true;
    expect_damaged(wrong, "boolean");
  }
  support::AtomicFile(file).commit(good.dump());
  EXPECT_EQ(hinge({"train", "--resume", path("run"), "--set", "optim.steps=12"}).code, 0);
}

TEST_F(CommandTest, AFolderThatCannotBeWrittenIsNamed) {
  put("file", "");
  const Ended under_file = hinge({"train", path("tiny.toml"), "--out", path("file/run")});
  EXPECT_EQ(under_file.code, 1);
  EXPECT_TRUE(mentions(under_file.err, {"hinge: cannot", path("file/run"), "Not a directory"}));
  const Ended foreign = hinge({"train", path("tiny.toml"), "--out", "/proc/hinge-run"});
  EXPECT_EQ(foreign.code, 1);
  EXPECT_TRUE(mentions(foreign.err, {"hinge: cannot", "/proc/hinge-run"}));
  const Ended nothing = hinge({"train", "--resume", path("nothing")});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_TRUE(mentions(nothing.err, {path("nothing"), "not a run"}));
}

TEST_F(CommandTest, ALossThatIsNoNumberFails) {
  std::vector<std::string> arguments = begin("run");
  for (const char* change : {"optim.lr=1e18", "optim.warmup_steps=0", "train.checkpoint_every=100"})
    arguments.insert(arguments.end(), {"--set", change});
  const Ended ended = hinge(arguments);
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(mentions(ended.err, {"hinge: the loss became", "the first that is not finite is block 0", "no checkpoint",
                                   "hinge train --resume " + path("run") + " --set optim.lr=3e+17"}));
  EXPECT_EQ(read_status(path("run")).state, "diverged");
  const Ended listed = hinge({"runs", path("run")});
  EXPECT_TRUE(mentions(listed.out, {"diverged", "the loss became"}));
  const Ended mended = hinge({"train", "--resume", path("run"), "--set", "optim.lr=3e-3"});
  EXPECT_EQ(mended.code, 0) << mended.err;
  EXPECT_TRUE(mentions(mended.out, {"Done: accuracy", "after 60 steps"}));
}

TEST_P(AnyRunTest, GoesOnWithOtherNumbers) {
  std::vector<std::string> arguments = begin("run");
  for (const char* change : {"optim.steps=8", "optim.schedule=cosine"}) arguments.insert(arguments.end(), {"--set", change});
  ASSERT_EQ(hinge(arguments).code, 0);
  const std::string before = content("run/config.toml");
  const auto go_on_with = [&](const std::vector<std::string>& changes) {
    std::vector<std::string> words = {"train", "--resume", path("run")};
    for (const std::string& change : changes) words.insert(words.end(), {"--set", change});
    return hinge(words);
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> wrong = {
      {"model.width=64", {"--set model.width=64", "optim. and train.", "data.on_error", "new run"}},
      {"data.path=/elsewhere", {"--set data.path=/elsewhere", "optim. and train.", "data.on_error"}},
      {"optim.lrr=1", {"optim.lrr", "optim.lr"}},
      {"optim.lr=-1", {"optim.lr must be positive"}},
      {"optim.steps=7", {"optim.steps is 7", "8 steps are done"}},
      {"data.on_error=go", {"data.on_error", "stop, skip"}},
  };
  for (const auto& [change, parts] : wrong) {
    const Ended refused = go_on_with({change});
    EXPECT_EQ(refused.code, 1);
    EXPECT_TRUE(mentions(refused.err, parts));
    EXPECT_EQ(content("run/config.toml"), before) << change;
  }
  EXPECT_EQ(hinge({"train", "--resume", path("run"), "--out", path("other")}).code, 2);

  const Ended more = go_on_with({"optim.steps=12", " optim.lr = 1e-4", "train.log_steps=2", "data.on_error=skip"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_TRUE(mentions(more.out, {"after 12 steps"}));
  const support::FlatConfig flat = support::flatten_config(content("run/config.toml"), "config.toml");
  const std::map<std::string, std::string> stored(flat.begin(), flat.end());
  EXPECT_EQ(stored.at("optim.steps"), "12");
  EXPECT_EQ(std::stod(stored.at("optim.lr")), 1e-4);
  EXPECT_EQ(stored.at("train.log_steps"), "2");
  EXPECT_EQ(stored.at("data.on_error"), "\"skip\"");
  const std::vector<support::MetricRecord> lines = support::read_metrics(metrics_path(path("run")));
  const auto tenth = std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.step == 10; });
  ASSERT_NE(tenth, lines.end());
  EXPECT_NEAR(tenth->number("train/lr"), 1e-4 * train::schedule_factor(train::Schedule::cosine, 9, 12, 4), 1e-12);
  // A number of epochs stands for other steps than those that are stored.
  ASSERT_EQ(go_on_with({"optim.epochs=5"}).code, 0);
  const int64_t steps = read_status(path("run")).steps;
  EXPECT_TRUE(of_vision() ? steps == 5 * 64 / 16 : steps > 12) << steps;
  // So does it for a new run of the same config; and a folder that holds a run is seen before the data are read.
  const std::vector<std::string> anew = {"train", path("run/config.toml"), "--set", "optim.epochs=1"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return hinge(words);
  };
  const Ended one_epoch = with(anew, {"--help-config"});
  EXPECT_TRUE(mentions(one_epoch.out, {"optim.steps = \"none\""}));
  const Ended there = with(anew, {"--set", "data.path=/nowhere", "--out", path("run")});
  EXPECT_EQ(there.code, 1);
  EXPECT_TRUE(mentions(there.err, {"already holds a run", "--resume"}));
  EXPECT_TRUE(mentions(with(anew, {"--out", path("run/config.toml/x")}).err, {"make the folder", "run/config.toml/x"}));
}

TEST_F(CommandTest, BadFilesAreLeftOutOnceAsked) {
  for (const char* name : {"train/a", "train/b", "test/a", "test/b"}) vision::write_tiny_images(path("images/") + name, 8);
  put("images/test/b/1.png", "no picture");
  put("files.toml", support::write_config(vision::tiny_of_files(path("images"), "test", 4)));
  const Ended failed = hinge({"train", path("files.toml"), "--out", path("run")});
  EXPECT_EQ(failed.code, 1);
  const std::string command = "hinge train --resume " + path("run") + " --set data.on_error=skip";
  EXPECT_TRUE(mentions(failed.err, {path("images/test/b/1.png"), command}));
  const Ended mended = hinge({"train", "--resume", path("run"), "--set", "data.on_error=skip"});
  EXPECT_EQ(mended.code, 0) << mended.err;
  EXPECT_TRUE(mentions(mended.out, {"Done: ", "1 files that cannot be decoded were skipped"}));
}

TEST_F(CommandTest, ThreadsThatCannotBeStartedAreAnError) {
  std::vector<std::string> arguments = begin("run");
  arguments.insert(arguments.end(), {"--set", "data.threads=20000"});
  const Ended ended = hinge(arguments, [] {
    const rlimit limit{6'000'000'000, 6'000'000'000};  // of addresses: some hundred stacks
    ::setrlimit(RLIMIT_AS, &limit);
    ::alarm(120);
  });
  EXPECT_EQ(ended.code, 1) << "signal " << ended.signal;
  EXPECT_TRUE(mentions(ended.err, {"cannot start 20000 threads", "set data.threads lower"}));
}

TEST_F(CommandTest, PathsMeanTheSameFromEveryFolder) {
  for (const char* name : {"train/a", "train/b", "test/a", "test/b"}) vision::write_tiny_images(path("images/") + name, 8);
  put("map.tsv", "a\tone\nb\ttwo\n");
  vision::Config images = vision::tiny_of_files("./images", "test", 4);
  images.data.label_map = "map.tsv";
  put("files.toml", support::write_config(images));
  const std::string here = folder_.string();
  const Ended begun = hinge_in(here, {"train", "files.toml", "--out", "run"});
  ASSERT_EQ(begun.code, 0) << begun.err;
  vision::Config stored;
  support::read_config(stored, config_path(path("run")));
  EXPECT_EQ(stored.data.path, path("images"));
  EXPECT_EQ(stored.data.label_map, path("map.tsv"));
  EXPECT_EQ(hinge_in("/", {"eval", path("run")}).code, 0);
  EXPECT_EQ(hinge_in("/", {"train", "--resume", path("run"), "--set", "optim.steps=6"}).code, 0);

  translation::write_tiny_text(here);
  translation::Config words = translation::tiny("", 4);  // files in the folder where one is
  put("words.toml", support::write_config(words));
  ASSERT_EQ(hinge_in(here, {"train", "words.toml", "--out", "words"}).code, 0);
  const Ended more = hinge_in("/", {"train", "--resume", path("words"), "--set", "optim.steps=6"});
  EXPECT_EQ(more.code, 0) << more.err;
  ASSERT_EQ(hinge_in(here, {"train", "words.toml", "--out", "given", "--set", "data.vocabulary_file=words/vocabulary.model"}).code, 0);
  support::read_config(words, config_path(path("given")));
  EXPECT_EQ(words.data.vocabulary_file, path("words/vocabulary.model"));
}

TEST_F(CommandTest, ABadPictureDoesNotHideTheOthers) {
  vision::write_tiny_images(path("images/train/a"), 4), vision::write_tiny_images(path("images/train/b"), 4);
  put("files.toml", support::write_config(vision::tiny_of_files(path("images"), "train", 2)));
  ASSERT_EQ(hinge({"train", path("files.toml"), "--out", path("run")}).code, 0);
  put("bad.png", "no picture");
  const std::string good = path("images/train/a/0.png"), other = path("images/train/b/1.png"), bad = path("bad.png");
  const Ended json = hinge({"predict", path("run"), good, bad, other, "--json"});
  EXPECT_EQ(json.code, 1);
  const nlohmann::json all = nlohmann::json::parse(json.out);
  ASSERT_EQ(all.size(), 3u);
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(all[i]["image"], i == 0 ? good : other);
    EXPECT_EQ(all[i]["predictions"].size(), 2u);
    EXPECT_FALSE(all[i].contains("error"));
  }
  EXPECT_EQ(all[1]["image"], bad);
  EXPECT_TRUE(mentions(all[1]["error"].get<std::string>(), {"neither JPEG nor PNG"}));
  const Ended text = hinge({"predict", path("run"), bad, good});
  EXPECT_EQ(text.code, 1);
  EXPECT_TRUE(mentions(text.out, {good, "%"}));
  EXPECT_TRUE(mentions(text.err, {"hinge: " + bad}));
}

TEST_F(CommandTest, KeysAreSetAndMistakesNamed) {
  std::vector<std::string> arguments = begin("run");
  for (const char* change : {"model.attention.preset=softmax", "optim.steps=2", "train.seed=7"})
    arguments.insert(arguments.end(), {"--set", change});
  ASSERT_EQ(hinge(arguments).code, 0);
  vision::Config stored;
  support::read_config(stored, config_path(path("run")));
  EXPECT_EQ(stored.model.attention.preset, "softmax");
  EXPECT_EQ(stored.train.seed, 7);
  EXPECT_EQ(stored.model.classes, 4) << "the resolved config is stored";

  const auto expect_error = [&](const std::vector<std::string>& given, const std::vector<std::string>& parts) {
    const Ended ended = hinge(given);
    EXPECT_NE(ended.code, 0);
    EXPECT_TRUE(mentions(ended.err, parts));
    EXPECT_FALSE(fs::exists(path("other")));
  };
  const std::string toml = path("tiny.toml"), other = path("other");
  expect_error({"train", toml, "--out", other, "--set", "optim.lrr=1"}, {"optim.lrr", "optim.lr"});
  expect_error({"train", toml, "--out", other, "--set", "model.attention.preset=rleu"}, {"attention.preset", "rleu", "relu-vit"});
  expect_error({"train", toml, "--out", other, "--set", "model.pool=gup"}, {"model.pool", "gap, tok"});
  put("wrong.toml", "[model]\nwitdh = 3\n");
  // More than an address can say: not to be had on any machine.
  const Ended huge = hinge({"train", toml, "--out", other, "--set", "model.heads=1", "--set", "model.width=1000000000000000"});
  EXPECT_NE(huge.code, 0);
  EXPECT_TRUE(mentions(huge.err, {"memory"}));
  EXPECT_EQ(huge.err.find("frame #"), std::string::npos);
  expect_error({"train", path("wrong.toml"), "--out", other}, {path("wrong.toml") + ":2", "model.witdh", "model.width"});
  expect_error({"train", path("none.toml"), "--out", other}, {path("none.toml")});
  expect_error({"train"}, {"--resume"});
  expect_error({"train", toml, "--resume", path("run")}, {"only one"});
}

TEST_F(CommandTest, TranslationsAreListedAndCompared) {
  translation::write_tiny_text(folder_.string());
  translation::Config words = translation::tiny(folder_.string(), 8);
  words.train.bleu_sentences = 5;
  put("words.toml", support::write_config(words));
  for (const char* preset : {"reluformer", "softmax"}) {
    const Ended ended = hinge({"train", path("words.toml"), "--out", path(std::string("runs/") + preset), "--set",
                               std::string("model.attention.preset=") + preset});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(mentions(ended.err, {"training: 240 pairs", "validation: 40 pairs", "on 5 sentences", "mean of the last 2 checkpoints"}));
    EXPECT_TRUE(mentions(ended.out, {"Done: validation loss", "tokens/s"}));
  }
  const Ended listed = hinge({"runs", path("runs")});
  EXPECT_EQ(listed.code, 0);
  EXPECT_TRUE(mentions(listed.out, {"perplexity", "BLEU", "averaged perplexity", "averaged BLEU", "tokens/s", "loss ",
                                    "model.attention.preset", "reluformer", "8/8"}));
  ASSERT_EQ(hinge({"report", path("runs"), "--out", path("page.html")}).code, 0);
  EXPECT_TRUE(mentions(content("page.html"), {"<h1>Translation models compared</h1>", "<th>averaged perplexity</th>",
                                              "<th>averaged BLEU</th>", "Loss on the validation text", "Perplexity", "BLEU of"}));

  ASSERT_EQ(hinge({"train", path("tiny.toml"), "--out", path("runs/images"), "--set", "optim.steps=2"}).code, 0);
  EXPECT_TRUE(mentions(hinge({"runs", path("runs")}).out, {"images", "softmax"}));
  const Ended mixed = hinge({"report", path("runs"), "--out", path("page.html")});
  EXPECT_EQ(mixed.code, 1);
  EXPECT_TRUE(mentions(mixed.err, {path("runs/images"), path("runs/reluformer"), "is a vision run", "is a translation run", "one task"}));

  // A command for one task names the other; hinge eval takes both.
  const std::string words_run = path("runs/softmax"), images_run = path("runs/images");
  EXPECT_TRUE(mentions(hinge({"predict", words_run, "a.png"}).err, {words_run, "is a translation run; hinge predict takes a vision run"}));
  EXPECT_TRUE(mentions(hinge({"analyze", images_run}).err, {images_run, "is a vision run; hinge analyze takes a translation run"}));
  const Ended measured = hinge({"eval", words_run, "--checkpoint", "averaged"});
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_TRUE(mentions(measured.out, {words_run + " at step 8, averaged weights, on 40 pairs of valid", "perplexity"}));
  EXPECT_EQ(hinge({"eval", words_run, "--classes", path("words.toml")}).code, 2);
  EXPECT_TRUE(mentions(hinge({"eval", images_run}).out, {images_run + " at step 2 on 64 images of synthetic, split test", "top-1"}));
  EXPECT_TRUE(mentions(hinge({"eval", "--help"}).out, {"vision: --data FORMAT", "translation: --data SOURCE,TARGET"}));
  EXPECT_TRUE(mentions(hinge({"eval", words_run, "--checkpoint", "avreaged"}).err, {"Did you mean 'averaged'?", "best, latest, averaged"}));

  // Keys are those of the config's task.
  const Ended wrong = hinge({"train", path("words.toml"), "--out", path("other"), "--set", "data.mixup=3"});
  EXPECT_TRUE(mentions(wrong.err, {"unknown key 'data.mixup'"}));
  EXPECT_TRUE(mentions(hinge({"train", path("words.toml"), "--help-config"}).out, {"optim.label_smoothing", "data.vocabulary.size", "60"}));
  EXPECT_TRUE(mentions(hinge({"train", "translation", "--help-config"}).out, {"optim.label_smoothing", "8000"}));
  EXPECT_EQ(hinge({"train", "vision", "--help-config"}).out.find("label_smoothing"), std::string::npos);
  EXPECT_TRUE(mentions(hinge({"train", "--help-config"}).out,
                       {"task = \"vision\"", "model.patch", "task = \"translation\"", "optim.label_smoothing"}));
  EXPECT_TRUE(mentions(hinge({"train", "translatoin", "--help-config"}).err, {"translatoin", "vision, translation"}));
  put("unknown.toml", "task = \"translate\"\n");
  EXPECT_TRUE(mentions(hinge({"train", path("unknown.toml")}).err, {path("unknown.toml"), "translate", "vision"}));
}

TEST_F(CommandTest, RunsAreListedAndCompared) {
  for (const char* preset : {"relu-vit", "softmax"}) {
    const Ended ended = hinge({"train", path("tiny.toml"), "--out", path(std::string("runs/") + preset), "--set", "optim.steps=8", "--set",
                               std::string("model.attention.preset=") + preset});
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  const Ended listed = hinge({"runs", path("runs")});
  EXPECT_EQ(listed.code, 0);
  EXPECT_TRUE(
      mentions(listed.out, {"run ", "state", "images/s", "memory", "model.attention.preset", "relu-vit", "softmax", "done", "8/8"}));
  EXPECT_EQ(std::count(listed.out.begin(), listed.out.end(), '\n'), 3);

  fs::create_directory(path("empty"));
  EXPECT_TRUE(mentions(hinge({"runs", path("empty")}).out, {"No runs in", "hinge train"}));
  EXPECT_EQ(hinge({"runs", path("nowhere")}).code, 1);
  const Ended none_yet = hinge_in(path("empty"), {"runs"});
  EXPECT_EQ(none_yet.code, 0) << none_yet.err;
  EXPECT_EQ(none_yet.out, "No runs yet: 'hinge train CONFIG' makes them.\n");
  EXPECT_EQ(hinge_in(path("empty"), {"runs", "runs"}).code, 1) << "a folder that was named must be there";
  EXPECT_TRUE(mentions(hinge_in(folder_.string(), {"runs"}).out, {"relu-vit", "softmax"}));

  const Ended reported = hinge({"report", path("runs"), "--out", path("page.html"), "--title", "relu <3 softmax"});
  ASSERT_EQ(reported.code, 0) << reported.err;
  EXPECT_TRUE(mentions(reported.out, {path("page.html")}));
  const std::string page = content("page.html");
  EXPECT_TRUE(mentions(page, {"<h1>relu &lt;3 softmax</h1>", "Training loss", "Accuracy on the evaluation images", "model.attention.preset",
                              "Sample predictions", "class 0<br>", "✓ ", " relu-vit: class ", "Attention maps", "class 0: softmax"}));
  size_t pictures = 0;
  for (size_t at = page.find("data:image/png"); at != std::string::npos; at = page.find("data:image/png", at + 1)) ++pictures;
  EXPECT_GE(pictures, 4u + 3 * 2) << "an image of each class, and maps of three for each run";

  EXPECT_EQ(hinge({"report"}).code, 2);
  EXPECT_TRUE(mentions(hinge({"report", path("empty")}).err, {path("empty"), "no run"}));
  fs::remove_all(path("runs/softmax/checkpoints"));
  ASSERT_EQ(hinge({"report", path("runs"), "--out", path("page.html")}).code, 0);
  EXPECT_TRUE(mentions(content("page.html"), {"softmax holds no checkpoint", "class 0: relu-vit"}));
}

}  // namespace
}  // namespace hinge::tasks
