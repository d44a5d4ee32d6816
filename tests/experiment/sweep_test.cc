// Sweeps are read and expanded, their results merged, their points claimed by one process each.
#include "experiment/sweep.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "experiment/claims.h"
#include "experiment/sweep_display.h"
#include "experiment/sweep_results.h"
#include "experiment/sweep_runner.h"

namespace hinge::experiment {
namespace {

using support::error_of;
using support::mentions;

const char* const kHead = "title = \"T\"\nbase = \"../vit/base.toml\"\n";
const char* const kAxes = R"(
[axes.L]
label = "tokens"
values = [{ value = 16, set = { "model.patch" = 7 } }, { value = 49, set = { model.patch = 4, optim.lr = 1e-3 } }]
[axes.alpha]
key = "model.attention.alpha"
values = [0, 0.5, 1]
[axes.h]
key = "model.attention.h"
values = ["relu", "softmax"]
)";

class SweepTest : public support::TemporaryFolderTest {
 protected:
  Sweep read(const std::string& text) const {
    put("sweeps/one.toml", text);
    return read_sweep(path("sweeps/one.toml"));
  }
  std::string error(const std::string& text) const {
    return error_of([&] { read(text); });
  }
  std::vector<std::string> points(const std::string& text) const {
    std::vector<std::string> texts;
    for (const SweepPoint& point : read(kHead + std::string(kAxes) + text).points) texts.push_back(point_text(point.point));
    return texts;
  }
};
using Texts = std::vector<std::string>;

TEST_F(SweepTest, AGridHasEveryCombinationAndTheLastAxisVariesFastest) {
  EXPECT_EQ(points("[[grid]]\naxes = [\"h\", \"L\"]\n"), (Texts{"L=16 h=relu", "L=49 h=relu", "L=16 h=softmax", "L=49 h=softmax"}));
  EXPECT_EQ(points("[[grid]]\naxes = [\"L\", \"alpha\"]\nL = [49]\nalpha = [1.0, 0]\n"), (Texts{"L=49 alpha=1", "L=49 alpha=0"}));
  EXPECT_EQ(points("[[grid]]\naxes = [\"alpha\"]\nalpha = 0.5\n"), (Texts{"alpha=0.5"}));
}

TEST_F(SweepTest, EqualPointsAreOne) {
  EXPECT_EQ(points("[[grid]]\naxes = [\"L\"]\n[[grid]]\naxes = [\"L\", \"h\"]\nL = [16]\n[[point]]\nL = 49\n[[point]]\nh = \"relu\"\n"),
            (Texts{"L=16", "L=49", "L=16 h=relu", "L=16 h=softmax", "h=relu"}));
  EXPECT_TRUE(mentions(error(kHead + std::string(kAxes) + "[[grid]]\naxes = [\"L\"]\n[[point]]\nL = 49\nset = { \"optim.lr\" = 2 }\n"),
                       {"the point L=49 is there twice with different changes"}));
}

TEST_F(SweepTest, ChangesApplyFromTheGeneralToTheParticular) {
  const Sweep sweep = read(kHead + std::string("[set]\n\"optim.lr\" = 5\ndata.train = \"train[:90%]\"\nmodel.list = [1, 2]\n") + kAxes +
                           "[[grid]]\naxes = [\"h\", \"L\"]\nset = { \"optim.lr\" = 2e-3 }\n[[point]]\nalpha = 0.5\n");
  EXPECT_EQ(sweep.points[1].changes, (Texts{"optim.lr=5", "data.train=\"train[:90%]\"", "model.list=[1,2]", "model.patch=4",
                                            "optim.lr=0.001", "model.attention.h=\"relu\"", "optim.lr=0.002"}));
  EXPECT_EQ(sweep.points.back().changes.back(), "model.attention.alpha=0.5");
}

TEST_F(SweepTest, TheRestOfTheFile) {
  const Sweep sweep = read(kHead + std::string(R"(
text = "About it."
results = "../out/one.jsonl"
reuse = ["../out/other.jsonl"]
record = ["train/gradient_norm"]
)") + kAxes + R"toml(
[[grid]]
axes = ["L", "alpha", "h"]
[measure]
test = "eval --split test"
[derived]
gain = "L^(1-alpha)"
[[figure]]
name = "f"
x = "alpha"
y = "test.accuracy"
lines = "h"
panels = "L"
percent = true
where = { L = [16, 49], alpha = 1 }
reference = { h = "softmax" }
top_x = "gain"
[[table]]
name = "t"
rows = ["L", "h"]
columns = "alpha"
value = "test.accuracy"
)toml");
  EXPECT_EQ(sweep.name, "one");
  EXPECT_EQ(sweep.base, path("vit/base.toml"));
  EXPECT_EQ(sweep.results, path("out/one.jsonl"));
  EXPECT_EQ(sweep.reuse, Texts{path("out/other.jsonl")});
  EXPECT_EQ(sweep.text, "About it.");
  EXPECT_EQ(sweep.record, Texts{"train/gradient_norm"});
  EXPECT_EQ(sweep.points.size(), 12u);
  EXPECT_EQ(sweep.axis("L")->label, "tokens");
  EXPECT_EQ(sweep.axis("h")->label, "h");
  EXPECT_EQ(sweep.measures.at(0).second, "eval --split test");
  EXPECT_EQ(sweep.derived.at(0).first, "gain");
  const FigureConfig& figure = sweep.figures.at(0);
  EXPECT_EQ(figure.title, "T");
  EXPECT_TRUE(figure.percent && !figure.log_x);
  EXPECT_EQ(figure.where.at(0).second, (std::vector<AxisValue>{16, 49}));
  EXPECT_EQ(figure.where.at(1).second, std::vector<AxisValue>{1});
  EXPECT_EQ(figure.reference, (Point{{"h", "softmax"}}));
  EXPECT_EQ(sweep.tables.at(0).rows, (Texts{"L", "h"}));
}

TEST_F(SweepTest, MistakesNameTheLineAndWhatWasMeant) {
  const std::string head = kHead, grid = "[[grid]]\naxes = [\"L\"]\n", all = head + kAxes + grid;
  const auto expect = [&](const std::string& text, const std::vector<std::string>& words) {
    EXPECT_TRUE(mentions(error(text), words)) << error(text);
  };
  expect("base = \"b\"\n", {"one.toml:1", "'title' is missing"});
  expect(head + "bsae = 1\n", {":3: unknown key 'bsae'", "did you mean 'base'?"});
  expect(head, {"there is no point", "[[grid]]"});
  expect("title = \"T\"\nbase = 3\n", {":2: 'base' must be a text"});
  expect(head + "[axes.a]\nkye = \"x\"\nvalues = [1]\n", {"unknown key 'axes.a.kye'", "did you mean 'axes.a.key'?"});
  expect(head + "[axes.a]\nkey = \"x\"\n", {"axes.a has no 'values'"});
  expect(head + "[axes.a]\nvalues = [1]\n", {"axis 'a' needs a 'key'"});
  expect(head + "[axes.a]\nkey = \"x\"\nvalues = [1, 1.0]\n", {"axis 'a' has the value 1 twice"});
  expect(head + "[axes.a]\nkey = \"x\"\nvalues = [[1]]\n", {"must be a number, a text, true or false"});
  expect(head + "[axes.set]\nkey = \"x\"\nvalues = [1]\n", {"an axis cannot be called 'set'"});
  expect(head + kAxes + "[[grid]]\naxes = [\"alhpa\"]\n", {"there is no axis 'alhpa'; did you mean 'alpha'?"});
  expect(head + kAxes + "[[grid]]\naxes = [\"L\", \"L\"]\n", {"names 'L' twice"});
  expect(head + kAxes + "[[grid]]\naxes = [\"L\"]\nL = [17]\n", {"axis 'L' has no value 17; it has 16, 49"});
  expect(head + kAxes + "[[grid]]\naxes = [\"L\"]\nalpha = [1]\n", {"unknown key 'grid.alpha'"});
  expect(head + kAxes + "[[point]]\n", {"at least one axis"});
  expect(head + kAxes + "[grid]\naxes = [\"L\"]\n", {"[[grid]]"});
  expect(all + "[measure]\ntest = \" \"\n", {"'measure.test' must be a command of hinge"});
  expect(all + "[[figure]]\nname = \"f\"\nx = \"L\"\n", {"figure has no 'y'"});
  expect(all + "[[figure]]\nname = \"f\"\nx = \"L\"\ny = \"s\"\nlines = \"l\"\n", {"there is no axis 'l'"});
  expect(all + "[[figure]]\nname = \"f\"\nx = \"L\"\ny = \"s\"\nreference = { h = \"selu\" }\n", {"axis 'h' has no value selu"});
  expect(all + "[[table]]\nname = \"a/b\"\nrows = [\"L\"]\nvalue = \"s\"\n", {"cannot contain a slash"});
  expect(head + "=", {"not TOML"});
}

// ---- the config

TEST(ConfigHash, IsThatOfWhatMatters) {
  const support::FlatConfig keys = {{"model.width", "64"}, {"data.path", "\"/here\""}, {"train.workers", "2"}, {"optim.lr", "0.1"}};
  const std::string hash = config_hash(keys);
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(config_hash({{"optim.lr", "0.1"}, {"train.threads", "3"}, {"model.width", "64"}}), hash);
  EXPECT_NE(config_hash({{"optim.lr", "0.2"}, {"model.width", "64"}}), hash);
  EXPECT_NE(config_hash({{"optim.lr", "0.1"}, {"model.width", "64"}, {"train.seed", "1"}}), hash);
}

// ---- results

PointResult result(int64_t seed, const std::string& state, const std::string& config = "c") {
  PointResult result;
  result.point = {{"h", "relu"}, {"alpha", 0.5}, {"seed", seed}};
  result.config = config, result.state = state, result.message = "m", result.steps = 9, result.parameters = 219146;
  result.flops = 1.2e15, result.seconds = 31.2, result.core_hours = 0.0087;
  result.scores = {{"eval/loss", {{4, 0.5}, {9, std::numeric_limits<double>::quiet_NaN()}}}};
  result.measures = {{"test.accuracy", 0.842}};
  result.version = "1", result.machine = "M", result.finished = "2026-11-18T08:00:00Z";
  return result;
}

class ResultsTest : public support::TemporaryFolderTest {
 protected:
  static std::string lines(const std::vector<PointResult>& results) {
    std::string text;
    for (const PointResult& one : results) text += result_line(one) + "\n";
    return text;
  }
  std::vector<std::string> states(const std::string& text) const {
    put("r.jsonl", text);
    std::vector<std::string> all;
    for (const PointResult& one : read_results(path("r.jsonl"))) all.push_back(one.state);
    return all;
  }
};

TEST_F(ResultsTest, ALineHoldsAllOfIt) {
  const std::string line = result_line(result(3, kDone));
  EXPECT_TRUE(line.starts_with(R"({"point":{"h":"relu","alpha":0.5,"seed":3},"config":"c","state":"done")")) << line;
  put("r.jsonl", line + "\n");
  const PointResult back = read_results(path("r.jsonl")).at(0);
  EXPECT_EQ(result_line(back), line);
  EXPECT_TRUE(same_point(back.point, result(3, kDone).point));
  EXPECT_EQ(back.scores.at("eval/loss").at(0), (std::pair<int64_t, double>(4, 0.5)));
  EXPECT_TRUE(std::isnan(back.scores.at("eval/loss").at(1).second));
  EXPECT_TRUE(read_results(path("none.jsonl")).empty());
}

TEST_F(ResultsTest, OfEqualPointsTheFinishedOneCounts) {
  const PointResult done = result(0, kDone), failed = result(0, kFailed), diverged = result(1, kDiverged);
  EXPECT_EQ(states(lines({failed, diverged, done})), (Texts{"done", "diverged"}));
  EXPECT_EQ(states(lines({done, diverged, failed, diverged, done})), (Texts{"done", "diverged"}));
  EXPECT_EQ(states(lines({failed, failed})), Texts{"failed"});
  EXPECT_EQ(states(lines({result(0, kFailed, "d"), done})), Texts{"done"});
}

TEST_F(ResultsTest, ATornLastLineIsPassedOverAndADamagedOneNamed) {
  const std::string two = lines({result(0, kDone), result(1, kDone)});
  EXPECT_EQ(states(two.substr(0, two.size() - 20)), Texts{"done"});
  EXPECT_EQ(states(two.substr(0, two.size() - 1)), (Texts{"done", "done"}));
  EXPECT_TRUE(mentions(error_of([&] { states("{}\n" + two); }), {path("r.jsonl") + ":1", "not a result of a sweep"}));
  EXPECT_TRUE(mentions(error_of([&] {
                         states(lines({result(0, kDone), result(0, kDone, "other")}));
                       }),
                       {"h=relu alpha=0.5 seed=0", "two configs", "--drop-stale"}));
}

TEST_F(ResultsTest, ProcessesThatAddAtOnceLoseNothing) {
  constexpr int kProcesses = 4, kEach = 10;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    for (int i = 0; i < kEach; ++i)
      change_results(path("new/r.jsonl"), [&](std::vector<PointResult>& all) { all.push_back(result(100 * process + i, kDone)); });
    ::_exit(0);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  EXPECT_EQ(read_results(path("new/r.jsonl")).size(), static_cast<size_t>(kProcesses * kEach));
}

// ---- claims

class ClaimsTest : public support::TemporaryFolderTest {
 protected:
  // A claim as another process would have written it.
  void claim_by(const std::function<void(nlohmann::json&)>& change) const {
    Claims own(path("claims"));
    ASSERT_TRUE(own.take("own"));
    nlohmann::json owner = nlohmann::json::parse(content("claims/own"));
    change(owner);
    put("claims/p", owner.dump());
  }
  void touch(double seconds_ago) const {
    struct timespec now {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[2] = {{now.tv_sec - static_cast<time_t>(seconds_ago), 0}, {now.tv_sec - static_cast<time_t>(seconds_ago), 0}};
    ::utimensat(AT_FDCWD, path("claims/p").c_str(), times, 0);
  }
};

TEST_F(ClaimsTest, OneTakesItUntilItIsReleased) {
  Claims first(path("claims")), second(path("claims"));
  EXPECT_TRUE(first.take("p"));
  EXPECT_TRUE(first.take("p"));
  EXPECT_FALSE(second.take("p"));
  EXPECT_TRUE(second.take("q"));
  first.release("p");
  EXPECT_TRUE(second.take("p"));
}

TEST_F(ClaimsTest, ADeadProcessLosesIt) {
  const pid_t child = ::fork();
  if (child == 0) {
    Claims claims(path("claims"));
    const bool taken = claims.take("p");
    ::_exit(taken ? 0 : 1);  // without the destructor
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  Claims claims(path("claims"));
  EXPECT_TRUE(claims.take("p"));
  EXPECT_EQ(nlohmann::json::parse(content("claims/p")).at("pid"), ::getpid());
}

TEST_F(ClaimsTest, AnotherProcessWithTheSameNumberIsNotTheOwner) {
  claim_by([](nlohmann::json& owner) { owner["started"] = "1"; });
  EXPECT_TRUE(Claims(path("claims")).take("p"));
}

TEST_F(ClaimsTest, AnotherMachineIsGoneWhenItHasBeenSilentForLong) {
  claim_by([](nlohmann::json& owner) { owner["machine"] = "another"; });
  touch(Claims::kPatience - 30);
  EXPECT_FALSE(Claims(path("claims")).take("p"));
  touch(Claims::kPatience + 30);
  EXPECT_TRUE(Claims(path("claims")).take("p"));
}

TEST_F(ClaimsTest, ItIsKeptByTouchingIt) {
  Claims claims(path("claims"));
  ASSERT_TRUE(claims.take("p"));
  touch(1000);
  claims.keep();
  struct stat status {};
  ASSERT_EQ(::stat(path("claims/p").c_str(), &status), 0);
  EXPECT_LT(::time(nullptr) - status.st_mtim.tv_sec, 500);
}

TEST_F(ClaimsTest, OfManyThatTakeItOverOneGetsIt) {
  for (int round = 0; round < 20; ++round) {
    claim_by([](nlohmann::json& owner) { owner["started"] = "1"; });
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      Claims claims(path("claims"));
      const bool taken = claims.take("p");
      if (taken) std::ofstream(path("taken"), std::ios::app) << "x";
      while (taken && !std::ifstream(path("all"))) ::usleep(100);  // an owner that lives until all have tried
      ::_exit(0);
    }
    size_t ended = 0;
    while (ended + 1 < children.size()) ended += ::waitpid(-1, nullptr, 0) > 0;
    put("all", "");
    ::waitpid(-1, nullptr, 0);
    EXPECT_EQ(content("taken"), std::string(static_cast<size_t>(round) + 1, 'x'));
    std::filesystem::remove(path("all"));
  }
}

// ---- what a measure says

TEST(NumbersIn, NestedNamesAreJoined) {
  const auto printed = nlohmann::json::parse(
      R"({"accuracy": 0.5, "run": "r", "averaged": false, "by-set": {"one": 1}, "layers": [{"name": "encoder.0", "entropy": 2}],
          "means": [{"mean": 3}], "classes": [{"right": 4}, {"right": 5}]})");
  using Numbers = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(numbers_in(printed), (Numbers{{"accuracy", 0.5}, {"by_set.one", 1}, {"layers.encoder.0.entropy", 2}, {"means.mean", 3}}));
}

// ---- the display

TEST(SweepDisplay, IsRedrawnInPlaceOnATerminal) {
  std::string shown;
  support::ProgressOutput output{.write = [&](std::string_view text) { shown += text; },
                                 .seconds = [] { return 0.0; },
                                 .columns = [] { return 60; },
                                 .terminal = true};
  SweepState state{
      .done = 3, .diverged = 1, .failed = 0, .waiting = 5, .elsewhere = 0, .left = 62, .rows = {{"h=relu", "training", 5, 10, 9, 9}}};
  {
    SweepDisplay display("figure2", output);
    display.update(state);
    EXPECT_TRUE(mentions(shown, {"figure2 [########", "3 done, 1 diverged, 1 runn", "h=relu", "training", "5/10", "0:09"})) << shown;
    for (size_t begin = 0; begin < shown.size(); begin = shown.find('\n', begin) + 1)
      EXPECT_LT(shown.find('\n', begin) - begin, 60u) << "a line must not be broken";
    shown.clear();
    display.note("a note");
    EXPECT_TRUE(shown.starts_with("\x1b[3F\x1b[Ja note\nfigure2")) << shown;
    shown.clear();
  }
  EXPECT_EQ(shown, "\x1b[3F\x1b[J");
  EXPECT_EQ(summary(state), "3 done, 1 diverged, 1 running, 5 waiting; ETA 1:02");
}

TEST(SweepDisplay, ElsewhereThereAreOnlyLines) {
  std::string shown;
  SweepDisplay display(
      "figure2", {.write = [&](std::string_view text) { shown += text; }, .seconds = [] { return 0.0; }, .columns = [] { return 80; }});
  display.update({});
  display.note("a note");
  EXPECT_EQ(shown, "a note\n");
}

}  // namespace
}  // namespace hinge::experiment
