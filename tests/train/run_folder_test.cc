// A run folder keeps the last whole state through mistakes, full disks, a second process and kill -9 at any moment.
#include "train/run_folder.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "../support/errors.h"
#include "../support/file_size_limit.h"
#include "../support/temporary_folder.h"
#include "support/safetensors.h"

namespace {

std::vector<std::string>* flushed = nullptr;  // while it is set, what fsync() was called with

}  // namespace

// In place of the C library's.
extern "C" int fsync(int descriptor) {
  if (flushed != nullptr) flushed->push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string());
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace hinge::train {
namespace {

using support::Dtype;
using support::error_of;
using support::mentions;
using support::SafetensorsFile;

class RunFolderTest : public support::TemporaryFolderTest {
 protected:
  RunFolder create() const { return RunFolder::create(run_, "steps = 1\n"); }
  std::string checkpoint(int64_t step) const {
    const std::string digits = std::to_string(step);
    return run_ + "/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(run_ + "/checkpoints")) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  const std::string run_ = path("runs/a");
};

// Both files hold the step in every element, so that a mixture of two checkpoints shows.
CheckpointContent content_of(int64_t step, std::optional<double> score = std::nullopt, size_t size = 64) {
  const auto write = [=](const std::string& path) {
    const std::vector<int64_t> data(size, step);
    support::write_safetensors(path, {{"a", Dtype::kI64, {static_cast<int64_t>(size)}, data.data()}});
  };
  return {
      .step = step, .score = score, .files = {{"weights.safetensors", write}, {"state.safetensors", write}}, .state = {{"epoch", step}}};
}

bool holds(const Checkpoint& checkpoint, int64_t step) {
  for (const char* name : {"weights.safetensors", "state.safetensors"}) {
    const SafetensorsFile file(checkpoint.file(name));
    const auto& tensor = file.at("a");
    const auto* data = static_cast<const int64_t*>(tensor.data);
    for (size_t i = 0; i < tensor.elements(); ++i)
      if (data[i] != step) return false;
  }
  return checkpoint.step == step && checkpoint.state.at("epoch") == step;
}

TEST_F(RunFolderTest, CreatesOnceAndSaysHowToGoOn) {
  { const RunFolder run = create(); }
  EXPECT_EQ(content("runs/a/config.toml"), "steps = 1\n");
  EXPECT_TRUE(is_run(run_));
  EXPECT_TRUE(mentions(error_of([&] { create(); }), {run_, "--resume " + run_}));
  EXPECT_TRUE(mentions(error_of([&] { RunFolder::open(path("none")); }), {"is not a run", path("none")}));
  EXPECT_TRUE(mentions(error_of([&] { RunFolder::open(folder_.string()); }), {"config.toml"}));
  EXPECT_FALSE(latest_checkpoint(run_).found);
  EXPECT_FALSE(best_checkpoint(run_).found);
  put("file", "");
  EXPECT_TRUE(mentions(error_of([&] { RunFolder::create(path("file/run"), ""); }), {"file/run", "Not a directory"}));
}

TEST_F(RunFolderTest, IsLockedWhileItLives) {
  {
    const RunFolder run = create();
    EXPECT_TRUE(is_training(run_));
    EXPECT_TRUE(mentions(error_of([&] { RunFolder::open(run_); }), {"another process", run_}));
  }
  EXPECT_FALSE(is_training(run_));
  RunFolder::open(run_);
}

TEST_F(RunFolderTest, StatusComesBack) {
  RunFolder run = create();
  EXPECT_EQ(read_status(run_).state, "running");
  run.write_status({.state = "failed",
                    .step = 7,
                    .steps = 9,
                    .best = 0.5,
                    .best_step = 3,
                    .message = "disk \"full\"",
                    .values = {{"images_per_second", 12.5}, {"loss", std::nan("")}}});
  const RunStatus status = read_status(run_);
  EXPECT_EQ(status.state, "failed");
  EXPECT_EQ(status.step, 7);
  EXPECT_EQ(status.steps, 9);
  EXPECT_EQ(status.best, 0.5);
  EXPECT_EQ(status.best_step, 3);
  EXPECT_EQ(status.message, "disk \"full\"");
  EXPECT_EQ(status.values.at("images_per_second"), 12.5);
  EXPECT_TRUE(std::isnan(status.values.at("loss")));
  EXPECT_EQ(status.pid, ::getpid());
  EXPECT_EQ(status.updated.size(), std::string("2026-01-01T00:00:00Z").size());
  put("runs/a/status.json", "{\"state\":");
  EXPECT_TRUE(mentions(error_of([&] { read_status(run_); }), {"status.json", "damaged"}));
}

TEST_F(RunFolderTest, KeepsTheLastAndTheBest) {
  RunFolder run = create();
  const std::vector<double> scores = {0.1, 0.9, 0.3, 0.4, 0.9, 0.2, 0.1};
  for (size_t i = 0; i < scores.size(); ++i) run.save_checkpoint(content_of(static_cast<int64_t>(i + 1) * 100, scores[i]), 2);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000200", "step-00000600", "step-00000700"}));
  const Checkpoint latest = *latest_checkpoint(run_).found, best = *best_checkpoint(run_).found;
  EXPECT_TRUE(holds(latest, 700));
  EXPECT_EQ(latest.score, 0.1);
  EXPECT_TRUE(holds(best, 200));
  run.save_checkpoint(content_of(800, std::nan("")), 1);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000200", "step-00000800"}));
  EXPECT_EQ(latest_checkpoint(run_).found->score, std::nullopt);
}

TEST_F(RunFolderTest, GivesTheWeightsThatAreAskedFor) {
  RunFolder run = create();
  EXPECT_TRUE(mentions(error_of([&] { choose_weights(run_, Which::best); }), {run_, "no checkpoint yet"}));
  run.save_checkpoint(content_of(100, 0.5), 9);
  run.save_checkpoint(content_of(200, 0.3), 9);
  EXPECT_TRUE(mentions(error_of([&] { choose_weights(run_, Which::averaged); }), {run_, "no averaged weights", "train.average"}));
  EXPECT_EQ(choose_weights(run_, Which::best).path(), checkpoint(100) + "/weights.safetensors");
  EXPECT_EQ(choose_weights(run_, Which::latest).path(), checkpoint(200) + "/weights.safetensors");
  for (const double score : {0.4, 0.6}) {  // the mean is the best only if its score is the highest
    CheckpointContent last = content_of(200, 0.3);
    last.state["averaged_score"] = score;
    run.save_checkpoint(last, 9);
    const ChosenWeights best = choose_weights(run_, Which::best);
    EXPECT_EQ(best.averaged, score > 0.5);
    EXPECT_EQ(best.path(), score > 0.5 ? checkpoint(200) + "/averaged.safetensors" : checkpoint(100) + "/weights.safetensors");
    EXPECT_EQ(choose_weights(run_, Which::averaged).path(), checkpoint(200) + "/averaged.safetensors");
    EXPECT_EQ(choose_weights(run_, Which::latest).path(), checkpoint(200) + "/weights.safetensors");
  }
  std::filesystem::resize_file(checkpoint(200) + "/weights.safetensors", 8);
  const ChosenWeights latest = choose_weights(run_, Which::latest);
  EXPECT_EQ(latest.checkpoint.step, 100);
  ASSERT_EQ(latest.skipped.size(), 1u);
  EXPECT_TRUE(mentions(latest.skipped[0], {checkpoint(200), "8 bytes"}));
}

TEST_F(RunFolderTest, NeededCheckpointsStay) {
  RunFolder run = create();
  for (int64_t step = 100; step <= 600; step += 100) {
    CheckpointContent content = content_of(step);
    content.needed = {200, 400, 700};
    run.save_checkpoint(content, 1);
  }
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000200", "step-00000400", "step-00000600"}));
  EXPECT_TRUE(holds(checkpoint_of(run_, 400), 400));
  EXPECT_TRUE(mentions(error_of([&] { checkpoint_of(run_, 300); }), {checkpoint(300)}));
  run.save_checkpoint(content_of(700), 1);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000700"}));
}

TEST_F(RunFolderTest, FilesOfARunAreThereWhenItIsOne) {
  EXPECT_TRUE(mentions(error_of([&] { RunFolder::create(run_, "steps = 1\n", {{"no/such/folder", "x"}}); }), {"no/such/folder"}));
  EXPECT_FALSE(is_run(run_));
  RunFolder::create(run_, "steps = 1\n", {{"vocabulary.model", "words"}});
  EXPECT_EQ(content("runs/a/vocabulary.model"), "words");
}

TEST_F(RunFolderTest, WithoutScoresTheBestIsTheLatest) {
  RunFolder run = create();
  run.save_checkpoint(content_of(1), 5);
  run.save_checkpoint(content_of(2), 5);
  EXPECT_EQ(best_checkpoint(run_).found->step, 2);
}

TEST_F(RunFolderTest, ReplacesTheSameStep) {
  RunFolder run = create();
  run.save_checkpoint(content_of(5, 0.1), 2);
  run.save_checkpoint(content_of(5, 0.2), 2);
  EXPECT_EQ(checkpoints(), std::vector<std::string>{"step-00000005"});
  EXPECT_EQ(latest_checkpoint(run_).found->score, 0.2);
}

TEST_F(RunFolderTest, KeepingTheLatestRemovesEarlierOnesAlone) {
  RunFolder run = create();
  for (const int64_t step : {1, 2, 3}) run.save_checkpoint(content_of(step), 9);
  const std::string weights = checkpoint(3) + "/weights.safetensors";
  std::filesystem::rename(weights, path("aside"));
  keep_latest_checkpoint(run_);
  std::filesystem::rename(path("aside"), weights);
  EXPECT_TRUE(holds(*latest_checkpoint(run_).found, 3)) << "it could not be read for a moment";
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000002", "step-00000003"}));
  keep_latest_checkpoint(run_);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000003"}));
}

TEST_F(RunFolderTest, SkipsAndNamesUnusableCheckpoints) {
  RunFolder run = create();
  for (const int64_t step : {1, 2, 3, 4, 5}) run.save_checkpoint(content_of(step, static_cast<double>(step)), 9);
  std::filesystem::resize_file(checkpoint(5) + "/state.safetensors", 100);
  std::filesystem::remove(checkpoint(4) + "/weights.safetensors");
  std::ofstream(checkpoint(3) + "/checkpoint.json") << "{}";
  std::fstream(checkpoint(2) + "/weights.safetensors", std::ios::in | std::ios::out) << "garbage!";
  const CheckpointSearch latest = latest_checkpoint(run_), best = best_checkpoint(run_);
  ASSERT_TRUE(latest.found && best.found);
  EXPECT_EQ(latest.found->step, 1);
  EXPECT_EQ(best.found->step, 1);
  ASSERT_EQ(latest.skipped.size(), 4u);
  EXPECT_TRUE(mentions(latest.skipped[0], {"step-00000005/state.safetensors", "100 bytes"}));
  EXPECT_TRUE(mentions(latest.skipped[1], {"step-00000004/weights.safetensors", "No such file"}));
  EXPECT_TRUE(mentions(latest.skipped[2], {"step-00000003/checkpoint.json", "damaged"}));
  EXPECT_TRUE(mentions(latest.skipped[3], {"step-00000002/weights.safetensors"}));
  run.save_checkpoint(content_of(5), 9);  // going on from step 1, the damaged ones are replaced as their steps come again
  EXPECT_TRUE(holds(*latest_checkpoint(run_).found, 5));
}

class FlippedBitTest : public RunFolderTest {
 protected:
  FlippedBitTest() : run_folder_(create()) {
    for (const int64_t step : {1, 2, 3}) run_folder_.save_checkpoint(content_of(step, static_cast<double>(step)), 9);
  }
  // The last bit of a byte of a file.
  static void flip(const std::string& file, size_t byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(byte));
    const int value = stream.get();
    stream.seekp(static_cast<std::streamoff>(byte));
    stream.put(static_cast<char>(value ^ 1));
  }
  static void flip_last(const std::string& file) { flip(file, std::filesystem::file_size(file) - 1); }

  RunFolder run_folder_;
};

TEST_F(FlippedBitTest, IsNamedAndTheLastGoodCheckpointIsUsed) {
  EXPECT_TRUE(verify_run(run_).damaged.empty());
  EXPECT_TRUE(verify_run(run_).unchecked.empty());
  EXPECT_EQ(verify_run(run_).checkpoints, 3);
  flip_last(checkpoint(3) + "/weights.safetensors");
  for (const CheckpointSearch& search : {latest_checkpoint(run_), best_checkpoint(run_), latest_checkpoint(run_, Check::weights)}) {
    ASSERT_TRUE(search.found);
    EXPECT_TRUE(holds(*search.found, 2));
    ASSERT_EQ(search.skipped.size(), 1u);
    EXPECT_TRUE(mentions(search.skipped[0], {checkpoint(3) + "/weights.safetensors", "is damaged: tensor 'a' has the checksum"}));
  }
  EXPECT_EQ(choose_weights(run_, Which::best).checkpoint.step, 2);
  EXPECT_EQ(verify_run(run_).damaged, latest_checkpoint(run_).skipped);

  flip_last(checkpoint(2) + "/state.safetensors");  // who only needs the weights can use it
  EXPECT_EQ(latest_checkpoint(run_).found->step, 1);
  EXPECT_EQ(choose_weights(run_, Which::latest).checkpoint.step, 2);
  EXPECT_EQ(verify_run(run_).damaged.size(), 2u);

  flip_last(checkpoint(1) + "/state.safetensors");
  flip_last(checkpoint(1) + "/weights.safetensors");
  flip_last(checkpoint(2) + "/weights.safetensors");
  EXPECT_FALSE(latest_checkpoint(run_).found);
  EXPECT_TRUE(mentions(error_of([&] { choose_weights(run_, Which::latest); }), {"none of the checkpoints", run_, "is damaged"}));
}

TEST_F(FlippedBitTest, IsFoundInEveryByteOfTheDescription) {
  const std::string file = checkpoint(3) + "/checkpoint.json", whole = content("runs/a/checkpoints/step-00000003/checkpoint.json");
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    std::filesystem::remove(file);
    put("runs/a/checkpoints/step-00000003/checkpoint.json", flipped);
    const CheckpointSearch search = latest_checkpoint(run_, Check::headers);
    ASSERT_TRUE(search.found);
    if (search.found->step == 3) {
      ASSERT_TRUE(std::isspace(whole[bit / 8])) << bit << ": " << flipped;  // one white space for another
    } else {
      ASSERT_TRUE(mentions(search.skipped.at(0), {"step-00000003"})) << bit;
    }
  }
}

TEST_F(FlippedBitTest, FilesOfEarlierVersionsAreReadUnchecked) {
  const std::string file = checkpoint(3) + "/checkpoint.json";
  nlohmann::json description = nlohmann::json::parse(content("runs/a/checkpoints/step-00000003/checkpoint.json"));
  description.erase("crc32c");
  put("runs/a/checkpoints/step-00000003/checkpoint.json", description.dump());
  EXPECT_TRUE(holds(*latest_checkpoint(run_).found, 3));
  EXPECT_TRUE(verify_run(run_).damaged.empty());
  EXPECT_EQ(verify_run(run_).unchecked, std::vector<std::string>{file});
}

TEST_F(RunFolderTest, AFlippedBitInAFileOfTheRunIsFound) {
  RunFolder::create(run_, "steps = 1\n", {{"vocabulary.model", "words"}});
  EXPECT_EQ(read_run_file(run_, "vocabulary.model"), "words");
  put("runs/a/vocabulary.model", "wordt");
  EXPECT_TRUE(mentions(error_of([&] { read_run_file(run_, "vocabulary.model"); }), {run_ + "/vocabulary.model", "is damaged", "checksum"}));
  EXPECT_EQ(verify_run(run_).damaged.size(), 1u);
  std::filesystem::remove(run_ + "/checksums.json");
  EXPECT_EQ(read_run_file(run_, "vocabulary.model"), "wordt");
}

TEST_F(RunFolderTest, TheFoldersAboveANewRunAreFlushed) {
  const std::string deep = path("new/runs/a");
  std::vector<std::string> list;
  flushed = &list;
  RunFolder::create(deep, "steps = 1\n");
  flushed = nullptr;
  for (const std::string& folder : {folder_.string(), path("new"), path("new/runs"), deep})
    EXPECT_GT(std::count(list.begin(), list.end(), std::filesystem::canonical(folder).string()), 0) << folder;
}

TEST_F(RunFolderTest, AFailedSaveChangesNothing) {
  RunFolder run = create();
  run.save_checkpoint(content_of(1, 0.5), 1);
  {
    const support::FileSizeLimit limit(4096);
    EXPECT_TRUE(mentions(error_of([&] { run.save_checkpoint(content_of(2, 0.6, 4096), 1); }), {"weights.safetensors", "File too large"}));
  }
  CheckpointContent failing = content_of(1);
  failing.files[1].write = [](const std::string&) { throw std::runtime_error("no"); };
  EXPECT_EQ(error_of([&] { run.save_checkpoint(failing, 1); }), "no");
  EXPECT_EQ(checkpoints(), std::vector<std::string>{"step-00000001"});
  EXPECT_EQ(latest_checkpoint(run_).found->score, 0.5);
}

TEST_F(RunFolderTest, OpeningCleansUpAfterACrash) {
  {
    RunFolder run = create();
    run.save_checkpoint(content_of(1), 3);
    run.save_checkpoint(content_of(2), 3);
  }
  const std::string checkpoints_folder = run_ + "/checkpoints/";
  std::filesystem::create_directories(checkpoints_folder + ".new-step-00000003");
  std::filesystem::create_directories(checkpoints_folder + ".removed-step-00000000");
  std::filesystem::create_directories(checkpoints_folder + ".replaced-step-00000001");
  std::filesystem::rename(checkpoint(2), checkpoints_folder + ".replaced-step-00000002");  // killed between two renames
  put("runs/a/status.json.1-0.partial", "{");
  RunFolder::open(run_);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-00000001", "step-00000002"}));
  EXPECT_TRUE(holds(*latest_checkpoint(run_).found, 2));
  EXPECT_FALSE(std::filesystem::exists(run_ + "/status.json.1-0.partial"));
}

// A child saves one checkpoint after another and reports each through a pipe; it is killed at a random moment. Whatever it had reported
// must be there afterwards, whole, and the next process goes on from it.
TEST_F(RunFolderTest, SurvivesBeingKilledAtAnyMoment) {
  { const RunFolder run = create(); }
  std::mt19937 random(7);
  int64_t reported = 0;
  std::chrono::microseconds first_report{};  // from the start of a child, as the first one needed: moments are drawn from twice that
  for (int round = 0; round < 25; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        RunFolder run = RunFolder::open(run_);
        const CheckpointSearch search = latest_checkpoint(run_);
        for (int64_t step = search.found ? search.found->step : 0;;) {
          run.save_checkpoint(content_of(step, std::nullopt, 20'000), 2);  // the same step again first, which replaces it
          ++step;
          run.save_checkpoint(content_of(step, std::nullopt, 20'000), 2);
          run.write_status({.step = step});
          if (::write(ends[1], &step, sizeof step) != sizeof step) ::_exit(3);
        }
      } catch (...) {
        ::_exit(4);
      }
    }
    ::close(ends[1]);
    int64_t step = 0;
    if (round == 0) {
      const auto begin = std::chrono::steady_clock::now();
      if (::read(ends[0], &step, sizeof step) == sizeof step) reported = step;
      first_report = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
    }
    std::this_thread::sleep_for(first_report * (random() % 1000) / 500);
    ::kill(child, SIGKILL);
    while (::read(ends[0], &step, sizeof step) == sizeof step) reported = step;
    ::close(ends[0]);
    int outcome = 0;
    ::waitpid(child, &outcome, 0);
    ASSERT_TRUE(WIFSIGNALED(outcome)) << "the child stopped by itself with " << WEXITSTATUS(outcome);

    RunFolder::open(run_);
    const CheckpointSearch search = latest_checkpoint(run_);
    EXPECT_TRUE(search.skipped.empty()) << search.skipped[0];
    read_status(run_);
    if (reported == 0) continue;
    ASSERT_TRUE(search.found);
    EXPECT_GE(search.found->step, reported);
    EXPECT_TRUE(holds(*search.found, search.found->step));
    for (const std::string& name : checkpoints()) EXPECT_TRUE(name.starts_with("step-")) << name;
  }
  EXPECT_GT(reported, 0) << "no round got as far as one checkpoint: the test tests nothing";
}

}  // namespace
}  // namespace hinge::train
