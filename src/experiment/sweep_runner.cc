// The loop over the points of a sweep: claims them, starts their processes, watches these and keeps what they come to. One thread.
#include "experiment/sweep_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "experiment/claims.h"
#include "experiment/sweep_display.h"
#include "experiment/sweep_results.h"
#include "support/atomic_file.h"
#include "support/child_process.h"
#include "support/hash.h"
#include "support/jsonl.h"
#include "support/utc_time.h"
#include "train/run_folder.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kPollMilliseconds = 50;
constexpr double kKeepSeconds = 10;  // between two touches of the claims
constexpr double kLookSeconds = 1;   // between two looks at what others work on

// Six digits are more than the noise leaves of a score, and keep the file of results small.
double rounded(double value) { return std::isfinite(value) && value != 0 ? std::stod(fmt::format("{:.6g}", value)) : value; }

// "L=16,h=relu,seed=0-9f3c12ab": a folder's name. The hash tells runs of changed configs apart.
std::string run_name(const Point& point, const std::string& hash) {
  constexpr size_t kLongest = 150;
  std::string name = point_text(point);
  for (char& c : name)
    if (c == ' ')
      c = ',';
    else if (std::isalnum(static_cast<unsigned char>(c)) == 0 && std::strchr("._=,+-", c) == nullptr)
      c = '_';
  return name.substr(0, kLongest) + "-" + hash.substr(0, 8);
}

// Words with spaces stand in double quotes.
std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> std::quoted(word);) words.push_back(word);
  return words;
}

std::string read_from(const std::string& path, int64_t offset) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(offset);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t size_of(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// Why a process has ended: what hinge said last, or the last line of all.
std::string reason_of(const support::ChildEnd& end, const std::string& log) {
  std::string said, last;
  std::istringstream lines(log);
  constexpr std::string_view kOurs = "hinge: ";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kOurs)) said = line.substr(kOurs.size());
    if (!line.empty()) last = line;
  }
  if (end.signal != 0) return fmt::format("ended by signal {} ({})", end.signal, ::strsignal(end.signal));
  if (!said.empty()) return said;
  return last.empty() ? fmt::format("ended with exit code {}", end.code) : last;
}

// The step in the last line of a run's metrics; 0 if there is none yet.
int64_t last_step(const std::string& run) {
  constexpr int64_t kTail = 4096;
  const std::string path = train::metrics_path(run), tail = read_from(path, std::max<int64_t>(0, size_of(path) - kTail));
  const size_t end = tail.rfind('\n');
  if (end == std::string::npos) return 0;
  const size_t begin = std::string_view(tail).substr(0, end).rfind('\n') + 1;  // 0 if it is the only line
  const auto record = support::parse_metrics_line(std::string_view(tail).substr(begin, end - begin));
  return record ? record->step : 0;
}

// A point on its way.
struct Work {
  enum class State { waiting, running, elsewhere, done, diverged, failed };
  const SweepPoint* point = nullptr;
  size_t place = 0;  // among the sweep's points
  std::string hash, name;
  State state = State::waiting;
  std::string failed_before = {};  // when it failed last, before this process began
};

Work::State state_of(const PointResult& result) {
  return result.state == kDone ? Work::State::done : result.state == kDiverged ? Work::State::diverged : Work::State::failed;
}

// What a process of this sweep is doing for a point.
struct Job {
  Work* work = nullptr;
  std::string run, log;
  std::optional<size_t> measure;  // nothing: training
  std::optional<support::ChildProcess> child;
  int64_t log_begin = 0;  // of what this process writes
  std::string out;        // of a measure
  double begun = 0;
  bool anew = false;  // its run was begun by this process
  int64_t first_step = 0, step = 0, steps = 0;
  std::map<std::string, double> measures;
};

class Runner {
 public:
  Runner(const Sweep& sweep, const SweepOptions& options, const std::atomic<bool>& stop, support::ProgressOutput output)
      : sweep_(sweep),
        options_(options),
        stop_(stop),
        clock_(output.seconds),
        plain_(!output.terminal),
        results_(results_path(sweep, options.folder)),
        display_(sweep.name, std::move(output)) {
    for (size_t i = 0; i < sweep.points.size(); ++i) {
      const std::string hash = hash_of(sweep.points[i]);
      all_.push_back({&sweep.points[i], i, hash, run_name(sweep.points[i].point, hash)});
    }
    take_results();
    take_reused();
    std::vector<Work> own;
    for (Work& work : all_)
      if (static_cast<int64_t>(work.place) % options.parts == options.part - 1) own.push_back(std::move(work));
    all_ = std::move(own);
  }

  std::vector<SweepPoint> waiting() const {
    std::vector<SweepPoint> points;
    for (const Work& work : all_)
      if (work.state == Work::State::waiting) points.push_back(*work.point);
    return points;
  }

  SweepOutcome run() {
    if (!reused_.empty()) support::make_folders(options_.folder);
    for (const PointResult& result : reused_) keep(result);
    if (count(Work::State::waiting) > 0) {
      support::make_folders(logs());
      for (const auto& [copy, file] : {std::pair(kSweepCopy, sweep_.file), std::pair(kBaseCopy, sweep_.base)})
        support::AtomicFile(options_.folder + "/" + copy).commit(support::read_file(file));
      copy_results();
      claims_.emplace(options_.folder + "/claims");
      loop();
    }
    return {count(Work::State::done), count(Work::State::diverged), count(Work::State::failed),
            count(Work::State::waiting) + count(Work::State::elsewhere)};
  }

 private:
  std::string logs() const { return options_.folder + "/logs"; }

  std::string hash_of(const SweepPoint& point) const {
    try {
      return config_hash(options_.keys(point.changes));
    } catch (const std::runtime_error& error) {
      throw support::ConfigError(fmt::format("{}, point {}: {}", sweep_.file, point_text(point.point), error.what()));
    }
  }

  int64_t count(Work::State state) const {
    return std::count_if(all_.begin(), all_.end(), [&](const Work& work) { return work.state == state; });
  }

  // ---- results

  // Finished points need not be run. Throws for results of points whose config has changed, or removes them.
  void take_results() {
    const auto work_of = [&](const PointResult& result) {
      const auto found =
          std::find_if(all_.begin(), all_.end(), [&](const Work& work) { return same_point(work.point->point, result.point); });
      return found == all_.end() ? nullptr : &*found;
    };
    const auto is_stale = [&](const PointResult& result) {
      const Work* work = work_of(result);
      return result.is_finished() && work != nullptr && work->hash != result.config;
    };
    std::vector<PointResult> results = read_all_results(results_);
    const auto stale = std::count_if(results.begin(), results.end(), is_stale);
    if (stale > 0 && !options_.drop_stale)
      throw std::runtime_error(fmt::format(
          "{}: {} of {} results {} measured with another config than the sweep has now, such as that of {}; --drop-stale removes {} and "
          "runs the point{} again, or undo the change of the config",
          results_, stale, results.size(), stale == 1 ? "was" : "were",
          point_text(std::find_if(results.begin(), results.end(), is_stale)->point), stale == 1 ? "it" : "them", stale == 1 ? "" : "s"));
    if (stale > 0) change_results(results_, [&](std::vector<PointResult>& all) { std::erase_if(all, is_stale), results = all; });
    for (const PointResult& result : results)
      if (Work* work = work_of(result)) {
        if (result.is_finished())
          work->state = state_of(result), note_time(result);
        else
          work->failed_before = result.finished;
      }
  }

  // Results of other sweeps' points that have the same config, and all that this sweep keeps of one. They are recorded when it is run.
  void take_reused() {
    for (const std::string& file : sweep_.reuse)
      for (const PointResult& result : read_all_results(file)) {
        if (!result.is_finished() || !has_all(result)) continue;
        for (Work& work : all_)
          if (work.state == Work::State::waiting && work.hash == result.config) {
            work.state = state_of(result), note_time(result);
            reused_.push_back(result);
            reused_.back().point = work.point->point;
          }
      }
  }
  bool has_all(const PointResult& result) const {
    const auto measured = [&](const auto& measure) {
      const auto found = result.measures.lower_bound(measure.first + ".");
      return found != result.measures.end() && found->first.starts_with(measure.first + ".");
    };
    return result.state == kDiverged ||
           (std::all_of(sweep_.measures.begin(), sweep_.measures.end(), measured) &&
            std::all_of(sweep_.record.begin(), sweep_.record.end(), [&](const std::string& name) { return result.scores.contains(name); }));
  }

  // What another process has made of the point meanwhile; true if it need not be run.
  bool finished_elsewhere(Work& work) const {
    for (const PointResult& result : read_results(results_)) {
      if (!same_point(result.point, work.point->point)) continue;
      const bool counts = result.is_finished() ? result.config == work.hash : result.finished != work.failed_before;
      if (counts) work.state = state_of(result);
      return counts;
    }
    return false;
  }

  void record(PointResult result) {
    result.finished = support::utc_now();
    result.version = options_.version, result.machine = options_.machine;
    keep(result);
  }
  void keep(const PointResult& result) {
    change_results(results_, [&](std::vector<PointResult>& results) {
      std::erase_if(results, [&](const PointResult& other) {
        return same_point(other.point, result.point) && (!other.is_finished() || other.config == result.config);
      });
      results.push_back(result);
      const auto place = [&](const PointResult& one) {
        return std::find_if(sweep_.points.begin(), sweep_.points.end(),
                            [&](const SweepPoint& p) { return same_point(p.point, one.point); });
      };
      std::stable_sort(results.begin(), results.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    });
    copy_results();
  }

  void copy_results() const {
    const std::string copy = options_.folder + "/" + kResultsCopy;
    if (fs::path(copy).lexically_normal() == fs::path(results_).lexically_normal()) return;
    support::AtomicFile(copy).commit(fs::exists(results_) ? support::read_file(results_) : "");
  }

  PointResult result_of(const Job& job) const {
    PointResult result;
    result.point = job.work->point->point, result.config = job.work->hash;
    if (!train::is_run(job.run)) return result;
    const train::RunStatus status = train::read_status(job.run);
    const auto value = [&](const char* name) {
      const auto found = status.values.find(name);
      return found == status.values.end() ? 0 : found->second;
    };
    result.steps = status.step;
    result.parameters = static_cast<int64_t>(value("parameters"));
    result.flops = rounded(value("flops")), result.seconds = rounded(value("train_seconds"));
    result.core_hours = rounded(value("cpu_seconds") / 3600);
    if (fs::exists(train::metrics_path(job.run)))
      for (const support::MetricRecord& line : support::read_metrics(train::metrics_path(job.run)))
        for (const auto& [name, number] : line.values)
          if (const double* score = std::get_if<double>(&number); score != nullptr && is_recorded(name))
            result.scores[name].emplace_back(line.step, rounded(*score));
    for (const auto& [name, number] : job.measures) result.measures[name] = rounded(number);
    return result;
  }
  bool is_recorded(const std::string& name) const {
    return name.starts_with("eval/") || name.starts_with("averaged/") ||
           std::find(sweep_.record.begin(), sweep_.record.end(), name) != sweep_.record.end();
  }

  // ---- jobs

  void loop() {
    double kept = clock_();
    bool stopping = false;
    for (;;) {
      if (stop_ && !std::exchange(stopping, true))
        for (const Job& job : jobs_)
          if (job.child) job.child->send(SIGTERM);
      watch();
      if (!stop_) start_more();
      if (jobs_.empty() && (stop_ || count(Work::State::waiting) + count(Work::State::elsewhere) == 0)) return;
      if (clock_() - kept >= kKeepSeconds) claims_->keep(), kept = clock_();
      if (display_.due()) display_.update(state());
      ::poll(nullptr, 0, kPollMilliseconds);
    }
  }

  void start_more() {
    const bool look = clock_() - looked_ >= kLookSeconds;
    for (Work& work : all_) {
      if (std::ssize(jobs_) >= options_.jobs) return;
      if (work.state != Work::State::waiting && !(work.state == Work::State::elsewhere && look)) continue;
      if (look) looked_ = clock_();
      if (!claims_->take(work.name)) {
        work.state = Work::State::elsewhere;
        continue;
      }
      if (finished_elsewhere(work)) {
        claims_->release(work.name);
        continue;
      }
      // Its process has outlived the sweep that started it, and is saving what it has done.
      if (train::is_training(options_.folder + "/" + work.name)) {
        claims_->release(work.name);
        work.state = Work::State::elsewhere;
        continue;
      }
      begin(work);
    }
  }

  void begin(Work& work) {
    work.state = Work::State::running;
    jobs_.emplace_back();
    Job& job = jobs_.back();
    job.work = &work, job.begun = clock_();
    job.run = options_.folder + "/" + work.name, job.log = logs() + "/" + work.name + ".log";
    job.anew = !train::is_run(job.run);
    if (job.anew) return train(job);
    const std::string state = status_of(job).state;
    if (state == "diverged") return finish_diverged(job);
    if (state == "done") return next_measure(job);
    job.first_step = job.step = last_step(job.run);
    train(job);
  }

  static train::RunStatus status_of(const Job& job) {
    try {
      return train::read_status(job.run);
    } catch (const std::runtime_error&) {
      return {.state = "unknown"};  // a damaged status is no reason not to go on
    }
  }

  void train(Job& job) {
    std::vector<std::string> arguments = {"train"};
    if (job.anew) {
      arguments.push_back(sweep_.base);
      std::vector<std::string> changes = job.work->point->changes;
      changes.insert(changes.end(), {"train.workers=0", "train.threads=0"});  // by the threads of the sweep
      for (const std::string& change : changes) arguments.insert(arguments.end(), {"--set", change});
      arguments.insert(arguments.end(), {"--out", job.run});
    } else {
      arguments.insert(arguments.end(), {"--resume", job.run});
    }
    if (plain_) display_.note(fmt::format("{}: {}", point_text(job.work->point->point), job.anew ? "started" : "resumed"));
    start(job, std::move(arguments), job.log);
  }

  void next_measure(Job& job) {
    job.measure = job.measure ? *job.measure + 1 : 0;
    if (*job.measure == sweep_.measures.size()) return finish_done(job);
    std::vector<std::string> arguments = words_of(sweep_.measures[*job.measure].second);
    for (std::string& argument : arguments)
      if (argument.starts_with("RUN/")) argument.replace(0, 3, job.run);
    arguments.insert(arguments.begin() + 1, job.run);
    arguments.emplace_back("--json");
    job.out = fmt::format("{}/{}.{}.json", logs(), job.work->name, sweep_.measures[*job.measure].first);
    fs::remove(job.out);
    start(job, std::move(arguments), job.out);
  }

  void start(Job& job, std::vector<std::string> arguments, const std::string& out) {
    job.log_begin = size_of(job.log);
    job.child.emplace(support::ChildCommand{.program = options_.program,
                                            .arguments = std::move(arguments),
                                            .environment = {{"OMP_NUM_THREADS", std::to_string(options_.threads)}},
                                            .out = out,
                                            .err = job.log});
  }

  // Takes up what has ended.
  void watch() {
    for (size_t i = 0; i < jobs_.size();) {
      Job& job = jobs_[i];
      if (job.child)
        if (const std::optional<support::ChildEnd> end = job.child->poll()) ended(job, *end);
      if (job.work == nullptr)
        jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
  }

  void ended(Job& job, const support::ChildEnd& end) {
    job.child.reset();
    if (end.code == 0) {
      if (!job.measure) return stop_ ? leave(job) : next_measure(job);
      try {
        for (const auto& [name, number] : numbers_in(json::parse(support::read_file(job.out))))
          job.measures[sweep_.measures[*job.measure].first + "." + name] = number;
      } catch (const json::exception& error) {
        return finish_failed(job, fmt::format("the command printed no JSON: {}", error.what()));
      }
      fs::remove(job.out);
      return next_measure(job);
    }
    if (stop_) return leave(job);
    if (!job.measure && status_of(job).state == "diverged") return finish_diverged(job);
    finish_failed(job, reason_of(end, read_from(job.log, job.log_begin)));
  }

  void finish_done(Job& job) {
    PointResult result = result_of(job);
    result.state = kDone;
    record(result);
    train::keep_latest_checkpoint(job.run);
    note_time(result);
    if (job.anew) worked_here_ += clock_() - job.begun, trained_here_ += result.seconds;
    std::vector<std::string> scores;
    for (const auto& [name, curve] : result.scores)
      if (!curve.empty() && scores.size() < 3) scores.push_back(fmt::format("{} {:.4g}", name, curve.back().second));
    finish(job, Work::State::done, fmt::format("done in {}, {}", support::duration_text(result.seconds), fmt::join(scores, ", ")));
  }

  void finish_diverged(Job& job) {
    PointResult result = result_of(job);
    result.state = kDiverged;
    const std::string message = status_of(job).message;
    result.message = message.substr(0, message.find(". "));  // what follows is how to go on with the run
    record(result);
    finish(job, Work::State::diverged, "diverged, " + result.message);
  }

  void finish_failed(Job& job, std::string message) {
    PointResult result;
    result.point = job.work->point->point, result.config = job.work->hash;
    result.state = kFailed;
    if (job.measure) message = fmt::format("measure {}: {}", sweep_.measures[*job.measure].first, message);
    result.message = message;
    record(result);
    finish(job, Work::State::failed, fmt::format("failed, {} (log: {})", message, job.log));
  }

  void finish(Job& job, Work::State state, const std::string& text) {
    job.work->state = state;
    claims_->release(job.work->name);
    const std::string point = point_text(job.work->point->point);
    job.work = nullptr;
    const SweepState now = this->state();
    const std::string left = plain_ && !std::isnan(now.left) && now.waiting > 0 ? ", ETA " + support::duration_text(now.left) : "";
    display_.note(fmt::format("[{}/{}{}] {}: {}", now.done + now.diverged + now.failed, all_.size(), left, point, text));
    display_.update(now);
  }

  // Its run goes on another time.
  void leave(Job& job) {
    job.work->state = Work::State::waiting;
    claims_->release(job.work->name);
    job.work = nullptr;
  }

  // ---- how far it is

  // Training is what tells one point from another; evaluations and measures add about the same share to all.
  void note_time(const PointResult& result) {
    if (result.state == kDone) times_.emplace_back(result.point, result.seconds);
  }

  // The mean over the points done that have most in common with this one; NaN if there are none.
  double expected_seconds(const Point& point) const {
    int64_t most = -1;
    double sum = 0, n = 0;
    for (const auto& [other, seconds] : times_) {
      const auto common =
          std::count_if(other.begin(), other.end(), [&](const auto& entry) { return value_of(point, entry.first) == entry.second; });
      if (common > most) most = common, sum = n = 0;
      if (common == most) sum += seconds, ++n;
    }
    return sum / n * (trained_here_ > 0 ? worked_here_ / trained_here_ : 1);
  }

  SweepState state() {
    SweepState state;
    state.done = count(Work::State::done), state.diverged = count(Work::State::diverged), state.failed = count(Work::State::failed);
    state.waiting = count(Work::State::waiting), state.elsewhere = count(Work::State::elsewhere);
    double left = 0, begun = 0, begun_seconds = 0;  // begun: points on their way that say how long they will take
    for (Job& job : jobs_) {
      if (job.work == nullptr) continue;
      job.steps = train::is_run(job.run) ? status_of(job).steps : 0;
      job.step = job.measure ? job.steps : std::max(job.first_step, last_step(job.run));
      const double seconds = clock_() - job.begun;
      const double steps_made = static_cast<double>(job.step - job.first_step), steps_left = static_cast<double>(job.steps - job.step);
      const double own_left = job.measure || steps_made <= 0 ? kNan : seconds * steps_left / steps_made;
      if (!std::isnan(own_left)) left += own_left, ++begun, begun_seconds += seconds * static_cast<double>(job.steps) / steps_made;
      state.rows.push_back({point_text(job.work->point->point),
                            job.measure ? "measuring " + sweep_.measures[*job.measure].first : "training", job.step, job.steps, seconds,
                            own_left});
      if (std::isnan(own_left) && !job.measure) left += std::max(0.0, expected_seconds(job.work->point->point) - seconds);
    }
    for (const Work& work : all_)
      if (work.state == Work::State::waiting) left += times_.empty() ? begun_seconds / begun : expected_seconds(work.point->point);
    state.left = left / static_cast<double>(std::min<int64_t>(options_.jobs, std::max<int64_t>(1, state.waiting + std::ssize(state.rows))));
    return state;
  }

  const Sweep& sweep_;
  const SweepOptions& options_;
  const std::atomic<bool>& stop_;
  const std::function<double()> clock_;
  const bool plain_;
  const std::string results_;
  SweepDisplay display_;
  std::vector<Work> all_;
  std::vector<PointResult> reused_;  // of other sweeps
  std::vector<Job> jobs_;
  std::optional<Claims> claims_;
  double looked_ = 0;
  std::vector<std::pair<Point, double>> times_;  // of the points done: seconds of training
  double worked_here_ = 0, trained_here_ = 0;    // seconds of those done by this process: all, and of training
};

void collect(const json& value, const std::string& name, std::vector<std::pair<std::string, double>>& numbers) {
  const auto inner = [&](std::string part) {
    for (char& c : part)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '_';  // as formulas can name it
    return name.empty() ? part : name + "." + part;
  };
  if (value.is_number()) numbers.emplace_back(name, value.get<double>());
  if (value.is_object())
    for (const auto& [key, item] : value.items()) collect(item, inner(key), numbers);
  if (value.is_array())
    for (const json& item : value) {
      const bool named = item.is_object() && item.contains("name") && item["name"].is_string();
      if (named || value.size() == 1) collect(item, named ? inner(item["name"].get<std::string>()) : name, numbers);
    }
}

}  // namespace

std::string config_hash(support::FlatConfig keys) {
  std::erase_if(keys, [](const auto& entry) {
    return entry.first == "data.path" || entry.first == "train.workers" || entry.first == "train.threads";
  });
  std::sort(keys.begin(), keys.end());
  std::string text;
  for (const auto& [key, value] : keys) text += key + " = " + value + "\n";
  return fmt::format("{:016x}", support::fnv1a(text));
}

std::string results_path(const Sweep& sweep, const std::string& folder) {
  return sweep.results.empty() ? folder + "/" + sweep.name + ".jsonl" : sweep.results;
}

std::vector<SweepPoint> points_to_run(const Sweep& sweep, const SweepOptions& options) {
  const std::atomic<bool> stop = false;
  return Runner(sweep, options, stop, support::ProgressOutput::standard_error()).waiting();
}

SweepOutcome run_sweep(const Sweep& sweep, const SweepOptions& options, const std::atomic<bool>& stop, support::ProgressOutput output) {
  return Runner(sweep, options, stop, std::move(output)).run();
}

std::vector<std::pair<std::string, double>> numbers_in(const json& json) {
  std::vector<std::pair<std::string, double>> numbers;
  collect(json, "", numbers);
  return numbers;
}

}  // namespace hinge::experiment
