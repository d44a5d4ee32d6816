// A watched folder shows what is there, also when it is half written, changes or goes away, and reads nothing outside.
#include "experiment/watch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "experiment/sweep_runner.h"
#include "experiment/watch_text.h"
#include "support/atomic_file.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;
using support::error_of;
using support::mentions;

const ScoreFormat kScores = {[](double score) { return std::to_string(std::lround(100 * score)) + "%"; },
                             {{"accuracy", "accuracy", [](double value) { return std::to_string(std::lround(100 * value)) + "%"; }}}};

class WatchTest : public support::TemporaryFolderTest {
 protected:
  // A run of `lines` lines of metrics, ten steps each.
  void make(const std::string& name, const std::string& state, int64_t lines, const std::string& h = "relu") {
    train::RunFolder run = train::RunFolder::create(path(name), "task = \"vision\"\n[model]\nh = \"" + h + "\"\n");
    support::MetricsWriter metrics(train::metrics_path(path(name)), 0);
    for (int64_t i = 1; i <= lines; ++i) append(metrics, i);
    run.log("training");
    run.log("step 10: accuracy 50%");
    run.write_status(
        {.state = state,
         .step = 10 * lines,
         .steps = 1000,
         .best = 0.75,
         .values = {{"accuracy", 0.5}, {"images_per_second", 99}, {"train_seconds", 20}, {"flops", 4e9}, {"peak_flops", 1e9}}});
  }
  static void append(support::MetricsWriter& metrics, int64_t line) {
    metrics.append({10 * line, {{"train/loss", 100.0 / static_cast<double>(line)}, {"train/images_per_second", 123.0}}});
  }
  void add_text(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::app | std::ios::binary) << text;
  }
};

TEST_F(WatchTest, ShowsRunsAtEveryDepth) {
  make("relu", "done", 100);
  make("group/softmax", "stopped", 50, "softmax");
  put("group/notes.md", "no run");
  WatchedFolder folder(folder_.string());
  folder.refresh();
  ASSERT_EQ(folder.runs().size(), 2u);
  const WatchedRun& softmax = folder.runs()[0];
  EXPECT_EQ(softmax.id, "group/softmax");
  EXPECT_EQ(softmax.group, "group");
  EXPECT_EQ(softmax.state(), "stopped");
  EXPECT_EQ(softmax.step, 500);
  EXPECT_EQ(softmax.items, "images");
  EXPECT_EQ(softmax.items_per_second, 123);
  EXPECT_DOUBLE_EQ(softmax.peak_share, 0.2);
  EXPECT_EQ(softmax.loss, 2);
  EXPECT_EQ(softmax.losses.size(), 50u);
  EXPECT_EQ(folder.find("relu")->group, "");
  EXPECT_EQ(folder.find("relu")->loss, 1);  // the last line's, not the mean of a few
  EXPECT_EQ(folder.find("rel"), nullptr);
  EXPECT_EQ(folder.find("../relu"), nullptr);
  const Table table = watch_table(
      {folder.find("group/softmax"), folder.find("relu")}, [](const RunSummary&) -> const ScoreFormat& { return kScores; },
      /*unicode=*/false);
  EXPECT_EQ(table.header.back(), "model.h");
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"group/softmax", "stopped", "500/1000", "-", "50%", "75%", "123 images/s", "20%", "2",
                                                     table.rows[0][9], "softmax"}));
  EXPECT_EQ(table.rows[0][9].size(), 16u);
  EXPECT_EQ(table.rows[0][9].front(), '#');
  EXPECT_EQ(table.rows[0][9].back(), '_');
}

// Keys that only one task has do not tell its runs apart.
TEST_F(WatchTest, RunsAreComparedWithThoseOfTheirTask) {
  make("relu", "done", 1);
  make("softmax", "done", 1, "softmax");
  train::RunFolder::create(path("text"), "task = \"translation\"\n[data]\npair = \"en-de\"\n");
  WatchedFolder folder(folder_.string());
  folder.refresh();
  std::vector<const WatchedRun*> runs;
  for (const WatchedRun& run : folder.runs()) runs.push_back(&run);
  const std::vector<support::ConfigDifference> found = watched_differences(runs);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "model.h");
  EXPECT_EQ(found[0].values, (std::vector<std::string>{"\"relu\"", "\"softmax\"", ""}));
}

TEST_F(WatchTest, AFolderThatIsARunIsThatRun) {
  make("relu", "done", 1);
  WatchedFolder folder(path("relu"));
  folder.refresh();
  ASSERT_EQ(folder.runs().size(), 1u);
  EXPECT_EQ(folder.runs()[0].id, "relu");
  EXPECT_NE(folder.find("relu"), nullptr);
  EXPECT_TRUE(mentions(error_of([&] { WatchedFolder none(path("none")); }), {path("none"), "No such file"}));
}

TEST_F(WatchTest, TellsStatesApart) {
  make("run", "running", 10);
  WatchedFolder folder(folder_.string());
  folder.refresh();
  EXPECT_EQ(folder.runs()[0].state(), "killed");
  EXPECT_TRUE(mentions(resume_command(folder.runs()[0]), {"hinge train --resume ", path("run")}));
  {
    const train::RunFolder process = train::RunFolder::open(path("run"));
    folder.refresh();
    EXPECT_EQ(folder.runs()[0].state(), "running");
    EXPECT_DOUBLE_EQ(folder.runs()[0].seconds_left, 20.0 / 100 * 900);
    EXPECT_EQ(time_left_text(folder.runs()[0]), "3:00");
    EXPECT_EQ(resume_command(folder.runs()[0]), "");
    folder.refresh(static_cast<double>(std::time(nullptr)) + kStaleSeconds + 10);
    EXPECT_EQ(folder.runs()[0].state(), "stale");
    folder.refresh();
    EXPECT_EQ(folder.runs()[0].state(), "running");
  }
  folder.refresh();
  EXPECT_EQ(folder.runs()[0].state(), "killed");
  EXPECT_FALSE(std::isfinite(folder.runs()[0].seconds_left));
}

// What is between two checkpoints is in the metrics alone.
TEST_F(WatchTest, FollowsARunBetweenItsCheckpoints) {
  make("run", "running", 10);
  const train::RunFolder process = train::RunFolder::open(path("run"));
  WatchedFolder folder(folder_.string());
  folder.refresh();
  const uint64_t before = folder.revision();
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 1000).size(), 10u);
  folder.refresh();
  EXPECT_EQ(folder.revision(), before);
  {
    support::MetricsWriter metrics(train::metrics_path(path("run")), 1000);
    append(metrics, 11);
    metrics.append({110, {{"eval/accuracy", 0.9}}});
  }
  add_text("run/metrics.jsonl", R"({"step": 120, "train/loss": 0.0)");  // half a line
  folder.refresh();
  EXPECT_GT(folder.revision(), before);
  const WatchedRun& run = folder.runs()[0];
  EXPECT_EQ(run.revision, folder.revision());
  EXPECT_EQ(run.step, 110);
  EXPECT_EQ(score_text(run, kScores), "90%");
  EXPECT_EQ(folder.curve(run, "train/loss", 1000).size(), 11u);
  EXPECT_EQ(folder.curve(run, "train/loss", 1000).back().first, 110);
  add_text("run/metrics.jsonl", "5}\n");
  folder.refresh();
  EXPECT_EQ(folder.runs()[0].step, 120);
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 1000).back(), (std::pair<int64_t, double>(120, 0.05)));
  // Going on from an earlier checkpoint makes a new, shorter file.
  { support::MetricsWriter metrics(train::metrics_path(path("run")), 50); }
  folder.refresh();
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 1000).size(), 5u);
  EXPECT_EQ(folder.metrics(folder.runs()[0]), (std::vector<std::string>{"train/images_per_second", "train/loss"}));
}

TEST_F(WatchTest, ALongFileIsReadHereAndThere) {
  make("run", "done", 20'000);
  WatchedFolder folder(folder_.string());
  folder.refresh();
  const WatchedRun& run = folder.runs()[0];
  EXPECT_EQ(run.loss, 100.0 / 20'000);
  ASSERT_GT(run.losses.size(), 60u);
  EXPECT_LT(run.losses.size(), 70u);
  EXPECT_LT(run.losses.front().first, 1000);
  EXPECT_EQ(run.losses.back().first, 200'000);
  for (size_t i = 1; i < run.losses.size(); ++i) EXPECT_GT(run.losses[i].first, run.losses[i - 1].first);
  EXPECT_EQ(folder.curve(run, "train/loss", 300).size(), 300u);
  EXPECT_EQ(folder.curve(run, "train/loss", 300).back().first, 200'000);
  EXPECT_EQ(folder.curve(run, "none", 300).size(), 0u);
}

TEST_F(WatchTest, ALineWithoutAnEndTakesNoMemory) {
  make("run", "done", 3);
  add_text("run/metrics.jsonl", std::string(3 << 20, ' '));
  add_text("run/metrics.jsonl", "\n{\"step\": 40, \"train/loss\": 7}\n");
  WatchedFolder folder(folder_.string());
  folder.refresh();
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 10).size(), 4u);
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 10).back().second, 7);
  fs::resize_file(folder_ / "run/metrics.jsonl", uintmax_t{1} << 35);  // 32 GiB of nothing
  folder.refresh();
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 10).size(), 4u);
}

TEST_F(WatchTest, DamagedAndVanishingFilesAreNoErrors) {
  make("run", "done", 10);
  make("gone", "done", 10);
  WatchedFolder folder(folder_.string());
  folder.refresh();
  put("run/status.json", "{");
  put("run/config.toml", "= 3");
  put("run/metrics.jsonl", "not json\n{\"step\": 30, \"train/loss\": 7}\n[]\n{}\n\"x\"\n{\"step\": 1e99}\n");
  fs::remove_all(path("gone"));
  folder.refresh();
  ASSERT_EQ(folder.runs().size(), 1u);
  const WatchedRun& run = folder.runs()[0];
  EXPECT_EQ(run.state(), "unknown");
  EXPECT_EQ(run.loss, 7);
  ASSERT_EQ(run.summary.problems.size(), 2u);
  EXPECT_TRUE(mentions(run.summary.problems[1], {"status.json", "damaged"}));
  fs::remove(path("run/status.json"));
  fs::remove(path("run/metrics.jsonl"));
  folder.refresh();
  EXPECT_EQ(folder.runs()[0].state(), "unknown");
  EXPECT_EQ(folder.curve(folder.runs()[0], "train/loss", 10).size(), 0u);
  fs::remove_all(folder_ / "run");
  folder.refresh();
  EXPECT_TRUE(folder.runs().empty());
}

TEST_F(WatchTest, SymbolicLinksAreNotFollowed) {
  make("outside/secret", "done", 10);
  make("inside/run", "done", 10);
  fs::create_directory_symlink(path("outside"), path("inside/link"));
  fs::create_directory_symlink(path("outside/secret"), path("inside/secret"));
  for (const char* name : {"log", "note.txt", "metrics.jsonl"}) {
    fs::remove(path("inside/run/") + name);
    fs::create_symlink(path("outside/secret/status.json"), path("inside/run/") + name);
  }
  WatchedFolder folder(path("inside"));
  folder.refresh();
  ASSERT_EQ(folder.runs().size(), 1u);
  const WatchedRun& run = folder.runs()[0];
  EXPECT_EQ(run.id, "run");
  EXPECT_EQ(run.note, "");
  EXPECT_TRUE(folder.log(run, 10).empty());
  EXPECT_TRUE(folder.metrics(run).empty());
  EXPECT_TRUE(mentions(error_of([&] { folder.require_plain_files(run); }), {path("inside/run/"), "symbolic link"}));
}

TEST_F(WatchTest, FilesThatNeverEndAreNotRead) {
  make("run", "running", 10);
  WatchedFolder folder(folder_.string());
  folder.refresh();
  EXPECT_NO_THROW(folder.require_plain_files(folder.runs()[0]));
  for (const char* name : {"lock", "log", "note.txt", "metrics.jsonl", "checkpoints/fifo"}) {
    fs::remove(path("run/") + name);
    ASSERT_EQ(::mkfifo((path("run/") + name).c_str(), 0666), 0) << name;
  }
  folder.refresh();
  ASSERT_EQ(folder.runs().size(), 1u);
  EXPECT_EQ(folder.runs()[0].state(), "killed");
  EXPECT_TRUE(folder.metrics(folder.runs()[0]).empty());
  EXPECT_TRUE(mentions(error_of([&] { folder.require_plain_files(folder.runs()[0]); }), {path("run/"), "no ordinary file"}));
}

TEST_F(WatchTest, NotesAndTheArchiveAreFilesOfTheRun) {
  make("run", "done", 1);
  WatchedFolder folder(folder_.string());
  folder.refresh();
  folder.write_note(folder.runs()[0], "the good one");
  folder.archive(folder.runs()[0], true);
  folder.refresh();
  EXPECT_EQ(folder.runs()[0].note, "the good one");
  EXPECT_TRUE(folder.runs()[0].archived);
  EXPECT_EQ(content("run/note.txt"), "the good one");
  folder.write_note(folder.runs()[0], " \n");
  folder.archive(folder.runs()[0], false);
  folder.archive(folder.runs()[0], false);
  folder.refresh();
  EXPECT_EQ(folder.runs()[0].note, "");
  EXPECT_FALSE(folder.runs()[0].archived);
  EXPECT_FALSE(fs::exists(path("run/note.txt")));
}

TEST_F(WatchTest, TheLastLinesOfTheLog) {
  make("run", "done", 1);
  WatchedFolder folder(folder_.string());
  folder.refresh();
  const std::vector<std::string> lines = folder.log(folder.runs()[0], 1);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].ends_with("Z step 10: accuracy 50%")) << lines[0];
  EXPECT_EQ(folder.log(folder.runs()[0], 10).size(), 2u);
}

TEST_F(WatchTest, ASweepIsShownByItsCopies) {
  make("sweeps/rates/lr=1", "done", 1);
  put("sweeps/rates/sweep.toml",
      "title = \"Rates\"\nbase = \"base.toml\"\n[axes.lr]\nkey = \"optim.lr\"\nvalues = [1, 2]\n[[grid]]\naxes = [\"lr\"]\n");
  WatchedFolder folder(folder_.string());
  folder.refresh();
  ASSERT_EQ(folder.sweeps().size(), 1u);
  EXPECT_EQ(folder.sweeps()[0].id, "sweeps/rates");
  EXPECT_EQ(folder.runs()[0].group, "sweeps/rates");
  EXPECT_EQ(folder.sweeps()[0].problem, "");
  EXPECT_EQ(folder.sweeps()[0].title, "Rates");
  EXPECT_TRUE(mentions(folder.sweeps()[0].state, {"2 points", "2 missing"}));
  put("sweeps/rates/sweep.toml", "titel = ");
  folder.refresh();
  EXPECT_TRUE(mentions(folder.sweeps()[0].problem, {"sweep.toml:1"}));
}

TEST(WatchText, NothingThatATerminalWouldObey) {
  EXPECT_EQ(printable("relu \x1b[2J\n\x7f"), "relu ?[2J??");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xff ä ✓"),
            "?2J ? ä ✓");
  EXPECT_EQ(shell_word("runs/a=1,b"), "runs/a=1,b");
  EXPECT_EQ(shell_word("my runs/it's"), "'my runs/it'\\''s'");
  EXPECT_EQ(sparkline({{1, 0}, {2, 7}, {3, 3.5}}, 8, false), "_#=");
  EXPECT_EQ(sparkline({{1, 5}, {2, 5}}, 8, true), "▁▁");
  EXPECT_EQ(sparkline({}, 8, true), "");
}

}  // namespace
}  // namespace hinge::experiment
