// Accidents while hinge trains: system calls that fail, kills, full disks, too little memory, a clock that jumps, a terminal that closes, a
// folder that disappears. After each, what was saved before is whole, and going on ends with the same bits. HINGE_COMMAND is the program's
// path, HINGE_SHIM that of shim.cc's library.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "../cli/command.h"
#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "../train/runs.h"
#include "loaded_program.h"
#include "support/safetensors.h"
#include "torture.h"

namespace hinge::torture {
namespace {

using hinge_command::Ended;
using hinge_command::Process;
using support::mentions;
namespace fs = std::filesystem;

constexpr int64_t kSteps = 12;
// Epochs of 4 steps: a checkpoint after each, evaluations after 8 and 12; the mean of the last two.
const char* const kConfig = R"(task = "vision"
[model]
image_size = 8
channels = 1
patch = 4
width = 16
depth = 1
heads = 2
ffn.width = 32
classes = 0
dropout = 0.05
[data]
format = "synthetic"
synthetic_count = 64
synthetic_classes = 4
synthetic_size = 8
synthetic_channels = 1
[optim]
batch = 16
steps = 12
lr = 3e-3
warmup_steps = 4
[train]
workers = 1
threads = 1
log_steps = 3
eval_every = 2
checkpoint_every = 1
average = 2
)";

// A translation model as small, of numbers in words.
constexpr const char* kTranslation = R"(task = "translation"
[model]
width = 16
depth = 1
heads = 2
ffn.width = 32
max_length = 32
[data]
kind = "files"
path = "{folder}"
pair = "en-de"
longest_tokens = 30
vocabulary.size = 40
[optim]
batch = 64
steps = 60
lr = 1e-3
warmup_steps = 4
[train]
workers = 1
threads = 1
log_steps = 3
eval_every = 1000
)";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class FaultsTest : public support::TemporaryFolderTest {
 protected:
  FaultsTest() { put("tiny.toml", kConfig); }

  static std::function<void()> with(const Environment& environment) {
    return [environment] {
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    };
  }
  std::vector<std::string> begin(const std::string& run) const { return {"train", path("tiny.toml"), "--out", path(run)}; }
  std::vector<std::string> go_on(const std::string& run) const {
    return train::is_run(path(run)) ? std::vector<std::string>{"train", "--resume", path(run)} : begin(run);
  }
  Ended hinge(
      const std::vector<std::string>& arguments, const std::function<void()>& at_start = [] {}) const {
    return Process(path("out"), path("err"), arguments, at_start).wait();
  }
  // The same from a program that is loaded already.
  static LoadedProgram& loaded() {
    static LoadedProgram program;
    return program;
  }
  Ended loaded_hinge(const std::vector<std::string>& arguments, const Environment& environment = {}) const {
    return LoadedProgram::Process(loaded(), path("out"), path("err"), arguments, environment).wait();
  }
  double undisturbed() const {
    loaded_hinge({"--version"});
    const double started = now();
    const Ended ended = loaded_hinge(begin("undisturbed"));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return now() - started;
  }

  // Whatever happened to a run, it ended with an error that says so or did not notice, and what it had saved is whole.
  void expect_sound(const std::string& run, const Ended& ended) const {
    EXPECT_EQ(ended.signal, 0) << ended.err;
    if (ended.code != 0 && ended.code != 130) {
      EXPECT_TRUE(mentions(ended.err, {"hinge: "}));
    }
    expect_whole(run);
  }
  void expect_whole(const std::string& run) const {
    if (!train::is_run(path(run))) return;
    const train::Verification verification = train::verify_run(path(run));
    EXPECT_TRUE(verification.damaged.empty()) << verification.damaged[0];
  }
  // Gone on with, it ends as if nothing had happened.
  void expect_to_end_as_undisturbed(const std::string& run) const {
    const Ended ended = loaded_hinge(go_on(run));
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(train::read_status(path(run)).state, "done");
    EXPECT_TRUE(train::last_checkpoint_bytes(path(run), kSteps) == train::last_checkpoint_bytes(path("undisturbed"), kSteps))
        << "other bits";
    train::expect_same_metrics(path("undisturbed"), path(run));
    const train::Verification verification = train::verify_run(path(run));
    EXPECT_TRUE(verification.damaged.empty()) << verification.damaged[0];
    for (const auto& entry : fs::directory_iterator(path(run + "/checkpoints")))
      EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
    for (const auto& entry : fs::directory_iterator(path(run))) EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  }
  // Parallel text.
  void put_numbers() const {
    const std::vector<std::string> english = {"one", "two", "three", "four", "five", "six"},
                                   german = {"eins", "zwei", "drei", "vier", "fuenf", "sechs"};
    std::string source, target;
    for (size_t line = 0; line < 60; ++line) {
      for (size_t word = 0; word <= line % 5; ++word) {
        const size_t number = (7 * line + word * (line % 4 + 1)) % english.size();
        source += english[number] + ' ', target += german[number] + ' ';
      }
      source.back() = target.back() = '\n';
    }
    for (const char* part : {"train", "valid"}) put(std::string(part) + ".en", source), put(std::string(part) + ".de", target);
  }
  // Stopped after its first checkpoint. One that ends before it hears of that is begun again.
  void stopped(const std::string& run) const {
    for (int code = 0; code != 130;) {
      fs::remove_all(path(run));
      const std::vector<std::string> arguments = begin(run);
      Process process(path("out"), path("err"), arguments);
      while (!process.ended() && !(train::is_run(path(run)) && train::latest_checkpoint(path(run)).found))
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      process.send(SIGINT);
      const Ended ended = process.wait();
      code = ended.code;
      ASSERT_TRUE(code == 130 || code == 0) << ended.err;
    }
  }
};

struct Fault {
  std::string call;
  long number = 0;
  int error = 0;  // 0: a short write
  std::string how;
};

// The parameter is the call that fails.
class InjectedFaultsTest : public FaultsTest, public testing::WithParamInterface<const char*> {
 protected:
  static Environment environment(const std::string& run, const std::string& fault) {
    return {{"HINGE_FAULT_FOLDER", run}, {"HINGE_FAULT", fault}};
  }
  // Every fault that there can be in a process that makes so many of the calls.
  static std::vector<Fault> all_faults(long calls) {
    const std::map<std::string, std::vector<int>> errors = {{"open", {ENOSPC, EIO, EINTR, EMFILE}},
                                                            {"write", {ENOSPC, EIO, EINTR, 0}},
                                                            {"fsync", {ENOSPC, EIO, EINTR}},
                                                            {"rename", {ENOSPC, EIO}},
                                                            {"mmap", {ENOMEM, EIO}}};
    std::vector<Fault> faults;
    for (long number = 1; number <= calls; ++number)
      for (const int error : errors.at(GetParam()))
        for (const char* how : {"once", "on"})
          if (how == std::string("once") || error == ENOSPC || error == EIO) faults.push_back({GetParam(), number, error, how});
    std::shuffle(faults.begin(), faults.end(), std::mt19937(5));
    return faults;
  }
  static Accidents::Wanted every(const std::vector<Fault>& faults) {
    return {.quick = 1, .full = 16, .torture = std::ssize(faults), .all = std::ssize(faults)};
  }
  // How often the undisturbed process makes the call.
  long calls_of(const std::vector<std::string>& arguments, const std::string& run) const {
    Environment log = environment(run, "");
    log.emplace_back("HINGE_FAULT_LOG", path("log"));
    fs::remove(path("log"));
    const Ended ended = loaded_hinge(arguments, log);
    EXPECT_EQ(ended.code, 0) << ended.err;
    long calls = 0;
    std::ifstream lines(path("log"));
    for (std::string call, rest; lines >> call && std::getline(lines, rest);) calls += call == GetParam() ? 1 : 0;
    EXPECT_GT(calls, 0) << "the shim does not see " << GetParam();
    return calls;
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, InjectedFaultsTest, testing::Values("open", "write", "fsync", "rename", "mmap"),
                         [](const auto& given) { return std::string(given.param); });

TEST_P(InjectedFaultsTest, LoseNothingOfANewRun) {
  undisturbed();
  const long calls = calls_of(begin("counted"), path("counted"));
  const std::vector<Fault> faults = all_faults(calls);
  Accidents accidents(fmt::format("one of {} calls of {} fails in a new run", calls, GetParam()), every(faults));
  for (size_t i = 0; i < faults.size() && accidents.go_on(); ++i) {
    const Fault& fault = faults[i];
    SCOPED_TRACE(fmt::format("{} {} of error {} {}", fault.call, fault.number, fault.error, fault.how));
    const Ended ended =
        loaded_hinge(begin("run"), environment(path("run"), fmt::format("{} {} {} {}", fault.call, fault.number, fault.error, fault.how)));
    expect_sound("run", ended);
    expect_to_end_as_undisturbed("run");
    fs::remove_all(path("run"));
    accidents.add();
  }
}

TEST_P(InjectedFaultsTest, LoseNothingOfAResumedRun) {
  undisturbed();
  stopped("half");
  fs::copy(path("half"), path("counted"), fs::copy_options::recursive);
  const long calls = calls_of(go_on("counted"), path("counted"));
  const std::vector<Fault> faults = all_faults(calls);
  Accidents accidents(fmt::format("one of {} calls of {} fails in a resumed run", calls, GetParam()), every(faults));
  for (size_t i = 0; i < faults.size() && accidents.go_on(); ++i) {
    const Fault& fault = faults[i];
    SCOPED_TRACE(fmt::format("{} {} of error {} {}", fault.call, fault.number, fault.error, fault.how));
    fs::copy(path("half"), path("run"), fs::copy_options::recursive);
    const Ended ended =
        loaded_hinge(go_on("run"), environment(path("run"), fmt::format("{} {} {} {}", fault.call, fault.number, fault.error, fault.how)));
    expect_sound("run", ended);
    EXPECT_GE(train::latest_checkpoint(path("run")).found.value().step, 4);
    expect_to_end_as_undisturbed("run");
    fs::remove_all(path("run"));
    accidents.add();
  }
}

TEST_F(FaultsTest, KillsLoseNothing) {
  const double whole = undisturbed();
  Accidents accidents("kill -9 while it trains, evaluates or saves", {.quick = 3, .full = 40, .torture = 900});
  std::mt19937 random(1);
  for (int64_t run = 0; accidents.go_on(); ++run) {
    const std::string name = fmt::format("run-{}", run);
    for (bool done = false; !done && accidents.go_on();) {
      LoadedProgram::Process process(loaded(), path("out"), path("err"), go_on(name));
      const double end = now() + std::uniform_real_distribution(0.0, 1.05 * whole)(random);
      while (!process.ended() && now() < end) std::this_thread::sleep_for(std::chrono::microseconds(500));
      process.send(SIGKILL);
      const Ended ended = process.wait();
      done = ended.code == 0;
      if (done) break;
      ASSERT_EQ(ended.signal, SIGKILL) << ended.err;
      expect_whole(name);
      accidents.add();
    }
    expect_to_end_as_undisturbed(name);
    fs::remove_all(path(name));
  }
}

TEST_F(FaultsTest, KillsLoseNothingOfASweep) {
  put("small.toml", R"(title = "Small"
base = "tiny.toml"
[axes.h]
key = "model.attention.h"
values = ["relu", "softmax"]
[measure]
test = "eval --checkpoint latest"
[[grid]]
axes = ["h"]
)");
  const auto sweep = [&](const std::string& out) { return std::vector<std::string>{"sweep", path("small.toml"), "--out", path(out)}; };
  const auto weights = [&](const std::string& out) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(path(out)))
      if (entry.path().filename() == train::kWeights)
        all[fs::relative(entry.path(), path(out)).string()] = support::read_file(entry.path().string());
    return all;
  };
  const double started = now();
  const Ended first = hinge(sweep("undisturbed"));
  ASSERT_EQ(first.code, 0) << first.err;
  const double whole = now() - started;
  const std::map<std::string, std::string> expected = weights("undisturbed");
  ASSERT_EQ(expected.size(), 2u);
  Accidents accidents("kill -9 of a sweep and its runs", {.quick = 1, .full = 10, .torture = 100});
  std::mt19937 random(2);
  for (int64_t run = 0; accidents.go_on(); ++run) {
    const std::string name = fmt::format("sweep-{}", run);
    for (bool done = false; !done && accidents.go_on();) {
      Process process(path("out"), path("err"), sweep(name), [] { ::setpgid(0, 0); });
      const double end = now() + std::uniform_real_distribution(0.1 * whole, whole)(random);
      while (!process.ended() && now() < end) std::this_thread::sleep_for(std::chrono::microseconds(500));
      process.send_to_group(SIGKILL);
      done = process.wait().code == 0;
      if (!done) accidents.add();
    }
    const Ended last = hinge(sweep(name));
    EXPECT_EQ(last.code, 0) << last.err;
    EXPECT_TRUE(weights(name) == expected) << "other bits";
    fs::remove_all(path(name));
  }
}

TEST_F(FaultsTest, AFullDiskLosesNothing) {
  undisturbed();
  fs::create_directories(path("disk"));
  if (::mount("hinge-test", path("disk").c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "only root may mount a small disk";
  struct Unmount {
    std::string folder;
    ~Unmount() { ::umount2(folder.c_str(), MNT_DETACH); }
  } const unmount{path("disk")};
  const auto resize = [&](int64_t kilobytes) {
    ASSERT_EQ(::mount("hinge-test", path("disk").c_str(), "tmpfs", MS_REMOUNT, fmt::format("size={}k", kilobytes).c_str()), 0) << kilobytes;
  };
  Accidents accidents("a disk that becomes full", {.quick = 2, .full = 12});
  std::mt19937 random(3);
  while (accidents.go_on()) {
    const int64_t kilobytes = std::uniform_int_distribution<int64_t>(4, 180)(random);
    SCOPED_TRACE(fmt::format("{} kilobytes", kilobytes));
    resize(kilobytes);
    const Ended ended = hinge(begin("disk/run"));
    if (ended.code != 0) {
      EXPECT_TRUE(mentions(ended.err, {"No space left on device", "free some space"}));
    }
    expect_sound("disk/run", ended);
    resize(1 << 16);
    expect_to_end_as_undisturbed("disk/run");
    fs::remove_all(path("disk/run"));
    accidents.add();
  }
}

TEST_F(FaultsTest, TooLittleMemoryLosesNothing) {
  undisturbed();
  Accidents accidents("too little memory (ulimit -v)", {.quick = 2, .full = 20});
  std::mt19937 random(4);
  while (accidents.go_on()) {
    // First a limit with room for the libraries, and not for what their constructors allocate.
    const rlim_t megabytes = accidents.count() == 0 ? 700 : std::uniform_int_distribution<rlim_t>(300, 1200)(random);
    SCOPED_TRACE(fmt::format("{} MB", megabytes));
    const Ended ended = hinge(begin("run"), [&] {
      const rlimit limit{megabytes << 20, megabytes << 20}, processor{60, 60};  // no call may be tried for ever
      ::setrlimit(RLIMIT_AS, &limit);
      ::setrlimit(RLIMIT_CPU, &processor);
    });
    EXPECT_EQ(ended.signal, 0) << ended.err;
    if (train::is_run(path("run"))) {
      EXPECT_TRUE(train::verify_run(path("run")).damaged.empty());
    }
    expect_to_end_as_undisturbed("run");
    fs::remove_all(path("run"));
    accidents.add();
  }
}

TEST_F(FaultsTest, AClockThatJumpsChangesNothing) {
  undisturbed();
  Accidents accidents("a clock that jumps by years", {.quick = 1, .full = 3, .all = 3});
  for (const char* seconds : {"63072000", "3", "1000000000"}) {
    if (!accidents.go_on()) break;
    const Ended ended = hinge(begin("run"), with({{"LD_PRELOAD", HINGE_SHIM}, {"HINGE_CLOCK_JUMPS", seconds}}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    expect_to_end_as_undisturbed("run");
    EXPECT_EQ(hinge({"runs", path("run")}, with({{"LD_PRELOAD", HINGE_SHIM}, {"HINGE_CLOCK_JUMPS", seconds}})).code, 0);
    fs::remove_all(path("run"));
    accidents.add();
  }
}

// The terminal is closed once a checkpoint is there. SIGHUP stops the run, which saves; a run that ignores it, as nohup starts it, goes on.
TEST_F(FaultsTest, ATerminalThatClosesLosesNothing) {
  undisturbed();
  Accidents accidents("a terminal that closes", {.quick = 2, .full = 6});
  for (int round = 0; accidents.go_on(); ++round) {
    const bool ignored = round % 2 == 1;
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (ignored) std::signal(SIGHUP, SIG_IGN);
      std::vector<std::string> words = begin("run");
      words.insert(words.begin(), HINGE_COMMAND);
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    while (!fs::exists(path("run/checkpoints/step-00000004"))) std::this_thread::sleep_for(std::chrono::microseconds(200));
    ::close(terminal);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    const std::string state = train::read_status(path("run")).state;
    EXPECT_TRUE(state == "done" || (!ignored && state == "stopped")) << state << ", exit " << WEXITSTATUS(status);
    EXPECT_TRUE(train::verify_run(path("run")).damaged.empty());
    expect_to_end_as_undisturbed("run");
    fs::remove_all(path("run"));
    accidents.add();
  }
}

TEST_F(FaultsTest, AFolderThatDisappearsIsNamed) {
  undisturbed();
  Accidents accidents("the run's folder is moved or removed", {.quick = 2, .full = 10});
  for (int round = 0; accidents.go_on(); ++round) {
    Process process(path("out"), path("err"), begin("run"));
    while (!process.ended() && !fs::exists(path("run/checkpoints/step-00000004")))
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    const bool moved = round % 2 == 0;
    std::error_code ignored;
    if (moved)
      fs::rename(path("run"), path("moved"));
    else
      fs::remove_all(path("run"), ignored);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.signal, 0);
    if (ended.code != 0) {
      EXPECT_TRUE(mentions(ended.err, {"hinge: ", path("run")}));
    }
    fs::remove_all(path("run"));
    if (moved) {
      EXPECT_TRUE(train::verify_run(path("moved")).damaged.empty());
      EXPECT_GE(train::latest_checkpoint(path("moved")).found.value().step, 4);
      expect_to_end_as_undisturbed("moved");
      fs::remove_all(path("moved"));
    }
    accidents.add();
  }
}

// A weight, or a moment of the optimiser, of every parameter of both models in turn.
TEST_F(FaultsTest, NotANumberInAnyLayerIsNamed) {
  Accidents accidents("NaN in a parameter or in its optimiser state", {.quick = 8, .full = 1000});
  for (const char* task : {"vision", "translation"}) {
    if (task == std::string("translation")) {
      put_numbers();
      put("tiny.toml", fmt::format(kTranslation, fmt::arg("folder", path(""))));
    }
    for (const char* run : {"run", "good"}) fs::remove_all(path(run));
    stopped("run");
    const train::Checkpoint checkpoint = train::latest_checkpoint(path("run")).found.value();
    fs::copy(path("run"), path("good"), fs::copy_options::recursive);
    for (const char* name : {train::kWeights, train::kState}) {
      const std::string file = checkpoint.file(name);
      const size_t tensors = support::SafetensorsFile(file).tensors().size();
      const size_t stride = support::quick() ? std::max<size_t>(1, tensors / 2) : 1;
      for (size_t i = 0; i < tensors && accidents.go_on(); i += stride) {
        std::string parameter;
        {
          const support::SafetensorsFile good(path("good") + file.substr(path("run").size()));
          std::vector<support::TensorView> tensors_now = good.tensors();
          std::vector<float> data(tensors_now[i].elements());
          std::memcpy(data.data(), tensors_now[i].data, tensors_now[i].bytes());
          data[data.size() / 2] = std::nanf("");
          tensors_now[i].data = data.data();
          parameter = tensors_now[i].name;
          support::write_safetensors(file, tensors_now, good.metadata());
        }
        SCOPED_TRACE(fmt::format("{} of {}", parameter, name));
        const Ended ended = loaded_hinge(go_on("run"));
        EXPECT_EQ(ended.code, 1) << ended.out;
        const std::string layer = name == std::string(train::kState) ? parameter.substr(2) : parameter;
        EXPECT_TRUE(mentions(ended.err, {"hinge: ", "not finite", layer}));
        EXPECT_EQ(train::read_status(path("run")).state, "diverged");
        fs::remove_all(path("run"));
        fs::copy(path("good"), path("run"), fs::copy_options::recursive);
        accidents.add();
      }
    }
  }
}

}  // namespace
}  // namespace hinge::torture
