// hinge train as users and accidents meet it: killed at any moment,
// interrupted, on a full disk, with wrong keys. HINGE_COMMAND is the program's
// path.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "support/config.h"
#include "tiny.h"
#include "tiny_translation.h"
#include "train/task_kind.h"

namespace hinge::train {
namespace {

using support::mentions;
namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Ended {
  int code = -1;  // -1: by a signal
  int signal = 0;
  std::string out, err;
};

class CommandTest : public support::TemporaryFolderTest {
 protected:
  // A started hinge; at_start runs in the child before the program.
  class Process {
   public:
    Process(
        const CommandTest& test, const std::vector<std::string>& arguments, const std::function<void()>& at_start = [] {})
        : out_(test.path("out")), err_(test.path("err")) {
      std::vector<std::string> words = {HINGE_COMMAND};
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      id_ = ::fork();
      if (id_ != 0) return;
      for (const auto& [file, descriptor] : {std::pair(out_, STDOUT_FILENO), std::pair(err_, STDERR_FILENO)})
        ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), descriptor);
      at_start();
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ~Process() {
      if (id_ > 0 && !ended_) send(SIGKILL), wait();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void send(int signal) const { ::kill(id_, signal); }
    bool ended() {
      if (!ended_ && ::waitpid(id_, &status_, WNOHANG) == id_) ended_ = true;
      return ended_;
    }
    Ended wait() {
      if (!ended_) ::waitpid(id_, &status_, 0), ended_ = true;
      return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, WIFSIGNALED(status_) ? WTERMSIG(status_) : 0, support::read_file(out_),
              support::read_file(err_)};
    }

   private:
    std::string out_, err_;
    pid_t id_ = -1;
    int status_ = 0;
    bool ended_ = false;
  };

  CommandTest() { put("tiny.toml", support::write_config(config())); }
  explicit CommandTest(TaskKind kind) : CommandTest() {
    if (kind == TaskKind::vit) return;
    write_tiny_text(folder_.string());
    put("tiny.toml", support::write_config(tiny_translation(folder_.string(), kSteps)));
  }
  static VitTrainConfig config() {
    VitTrainConfig config = tiny(kSteps);
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

  static constexpr int64_t kSteps = 60;
};

// What holds for runs of every kind.
class AnyRunTest : public CommandTest, public ::testing::WithParamInterface<TaskKind> {
 protected:
  AnyRunTest() : CommandTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Kinds, AnyRunTest, ::testing::Values(TaskKind::vit, TaskKind::translation),
                         [](const auto& given) { return given.param == TaskKind::vit ? "vit" : "translation"; });

TEST_P(AnyRunTest, KilledAtAnyMomentItEndsWithTheSameBits) {
  const double whole = undisturbed();
  std::mt19937 random(20230914);
  int kills = 0, in_saves = 0, runs = 1;
  std::string run = "run-1";
  for (int attempt = 0; attempt < 40; ++attempt) {
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
      }
    } else {
      while (!process.ended() && now() < started + moment) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process.send(SIGKILL);
    const Ended ended = process.wait();
    if (ended.code == 0) {
      if (kills >= 6 && in_saves >= 3) break;
      // A busy machine looks too seldom to see a save: the run was done before it was killed. Another one.
      expect_as_undisturbed(run);
      run = "run-" + std::to_string(++runs);
      continue;
    }
    ASSERT_EQ(ended.signal, SIGKILL) << ended.err;
    ++kills, in_saves += in_save;
  }
  EXPECT_GE(kills, 6);
  EXPECT_GE(in_saves, 3);
  const Ended last = hinge(go_on(run));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(mentions(last.out, {GetParam() == TaskKind::vit ? "Done: accuracy" : "Done: validation loss", path(run)}));
  expect_as_undisturbed(run);
  for (const auto& entry : fs::directory_iterator(path(run + "/checkpoints")))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

TEST_P(AnyRunTest, CtrlCSavesAndSaysHowToGoOn) {
  undisturbed();
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string run = "run-" + std::to_string(signal);
    Process process(*this, begin(run));
    while (!process.ended() && !saving(run)) {
    }
    process.send(signal);
    const Ended ended = process.wait();
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(mentions(ended.err, {"stopping, and saving", "Ctrl-C again"}));
    EXPECT_TRUE(mentions(ended.out, {"Stopped after step", "of 60", "hinge train --resume " + path(run)}));
    EXPECT_EQ(read_status(path(run)).state, "stopped");
    EXPECT_LT(read_status(path(run)).step, kSteps);
    EXPECT_EQ(hinge(go_on(run)).code, 0);
    expect_as_undisturbed(run);
  }
}

TEST_P(AnyRunTest, AFullDiskLosesNothing) {
  undisturbed();
  {
    Process process(*this, begin("run"));
    while (!process.ended() && !saving("run")) {
    }
    process.send(SIGINT);
    ASSERT_EQ(process.wait().code, 0);
  }
  const CheckpointSearch before = latest_checkpoint(path("run"));
  ASSERT_TRUE(before.found);
  const auto weights = fs::file_size(before.found->file("weights.safetensors"));
  // No file may grow beyond half of the weights: the next save fails in its
  // middle.
  const Ended ended = hinge(go_on("run"), [&] {
    const rlimit limit{weights / 2, weights / 2};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_IGN);
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
  for (const char* change : {"optim.lr=1e18", "optim.warmup_steps=0"}) arguments.insert(arguments.end(), {"--set", change});
  const Ended ended = hinge(arguments);
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(mentions(ended.err, {"hinge: the loss became", "the first that is not finite is block 0", "checkpoint"}));
  EXPECT_EQ(read_status(path("run")).state, "failed");
  const Ended listed = hinge({"runs", path("run")});
  EXPECT_TRUE(mentions(listed.out, {"failed", "the loss became"}));
}

TEST_F(CommandTest, KeysAreSetAndMistakesNamed) {
  std::vector<std::string> arguments = begin("run");
  for (const char* change : {"model.attention.preset=softmax", "optim.steps=2", "train.seed=7"})
    arguments.insert(arguments.end(), {"--set", change});
  ASSERT_EQ(hinge(arguments).code, 0);
  VitTrainConfig stored;
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
  write_tiny_text(folder_.string());
  TranslationTrainConfig words = tiny_translation(folder_.string(), 8);
  words.train.bleu_sentences = 5;
  put("words.toml", support::write_config(words));
  for (const char* preset : {"reluformer", "softmax"}) {
    const Ended ended = hinge(
        {"train", path("words.toml"), "--out", path(std::string("runs/") + preset), "--set", std::string("model.attention=") + preset});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_TRUE(mentions(ended.err, {"training: 240 pairs", "validation: 40 pairs", "on 5 sentences", "mean of the last 2 checkpoints"}));
    EXPECT_TRUE(mentions(ended.out, {"Done: validation loss", "tokens/s"}));
  }
  const Ended listed = hinge({"runs", path("runs")});
  EXPECT_EQ(listed.code, 0);
  EXPECT_TRUE(mentions(listed.out, {"perplexity", "BLEU", "averaged perplexity", "averaged BLEU", "tokens/s", "loss ",
                                    "model.encoder.preset", "reluformer", "8/8"}));
  ASSERT_EQ(hinge({"report", path("runs"), "--out", path("page.html")}).code, 0);
  EXPECT_TRUE(mentions(content("page.html"), {"<h1>Translation models compared</h1>", "<th>averaged perplexity</th>",
                                              "<th>averaged BLEU</th>", "Loss on the validation text", "Perplexity", "BLEU of"}));

  ASSERT_EQ(hinge({"train", path("tiny.toml"), "--out", path("runs/images"), "--set", "optim.steps=2"}).code, 0);
  EXPECT_TRUE(mentions(hinge({"runs", path("runs")}).out, {"images", "softmax"}));
  const Ended mixed = hinge({"report", path("runs"), "--out", path("page.html")});
  EXPECT_EQ(mixed.code, 1);
  EXPECT_TRUE(mentions(mixed.err, {path("runs/images"), path("runs/reluformer"), "one kind"}));

  // Keys are those of the config's task.
  const Ended wrong = hinge({"train", path("words.toml"), "--out", path("other"), "--set", "optim.batch=3"});
  EXPECT_TRUE(mentions(wrong.err, {"optim.batch"}));
  EXPECT_TRUE(mentions(hinge({"train", path("words.toml"), "--help-config"}).out, {"optim.label_smoothing", "data.vocabulary.size", "60"}));
  EXPECT_TRUE(mentions(hinge({"train", "translation", "--help-config"}).out, {"optim.label_smoothing", "8000"}));
  EXPECT_EQ(hinge({"train", "vit", "--help-config"}).out.find("label_smoothing"), std::string::npos);
  EXPECT_TRUE(mentions(hinge({"train", "--help-config"}).out,
                       {"task = \"vit\"", "model.patch", "task = \"translation\"", "optim.label_smoothing"}));
  EXPECT_TRUE(mentions(hinge({"train", "translatoin", "--help-config"}).err, {"translatoin", "vit, translation"}));
  put("unknown.toml", "task = \"translate\"\n");
  EXPECT_TRUE(mentions(hinge({"train", path("unknown.toml")}).err, {path("unknown.toml"), "translate", "vit"}));
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

  const Ended reported = hinge({"report", path("runs"), "--out", path("page.html"), "--title", "relu <3 softmax"});
  ASSERT_EQ(reported.code, 0) << reported.err;
  EXPECT_TRUE(mentions(reported.out, {path("page.html")}));
  const std::string page = content("page.html");
  EXPECT_TRUE(mentions(page, {"<h1>relu &lt;3 softmax</h1>", "Training loss", "Accuracy on the evaluation images", "model.attention.preset",
                              "Sample predictions", "class 0<br>", "✓ ", " relu-vit: class ", "Attention maps", "class 0: softmax"}));
  size_t pictures = 0;
  for (size_t at = page.find("data:image/png"); at != page.npos; at = page.find("data:image/png", at + 1)) ++pictures;
  EXPECT_GE(pictures, 4u + 3 * 2) << "an image of each class, and maps of three for each run";

  EXPECT_EQ(hinge({"report"}).code, 2);
  EXPECT_TRUE(mentions(hinge({"report", path("empty")}).err, {path("empty"), "no run"}));
  fs::remove_all(path("runs/softmax/checkpoints"));
  ASSERT_EQ(hinge({"report", path("runs"), "--out", path("page.html")}).code, 0);
  EXPECT_TRUE(mentions(content("page.html"), {"softmax holds no checkpoint", "class 0: relu-vit"}));
}

}  // namespace
}  // namespace hinge::train
