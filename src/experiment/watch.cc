// Looking at files that others write: their stamps first, their content only where those have changed.
#include "experiment/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>

#include "experiment/sweep_report.h"
#include "experiment/sweep_results.h"
#include "experiment/sweep_runner.h"
#include "support/atomic_file.h"
#include "support/utc_time.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 6;               // folders below the watched one
constexpr int kMostEntries = 20'000;      // that are looked at in them
constexpr int64_t kSamples = 64;          // lines of a long file of metrics
constexpr int64_t kShortFile = 16 << 10;  // one that is read whole
constexpr int64_t kSampleBytes = 4 << 10, kTailBytes = 32 << 10;
constexpr int64_t kMostBytes = 4 << 20;      // of a config, a status or a note
constexpr int64_t kPiece = 1 << 20;          // of a file of metrics; longer lines are passed over
constexpr int64_t kMostMetrics = 256 << 20;  // of a longer file, its end is read
constexpr size_t kMostFollowed = 64;
constexpr std::string_view kLoss = "train/loss", kTraining = "train/", kEvaluation = "eval/";
constexpr std::string_view kPerSecond = "_per_second";

FileStamp stamp_of(const struct stat& found) {
  return {found.st_ino, found.st_size, static_cast<int64_t>(found.st_mtim.tv_sec) * 1'000'000'000 + found.st_mtim.tv_nsec};
}

// A file that is read, never through a symbolic link and never one that is not plain.
class PlainFile {
 public:
  explicit PlainFile(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {
    struct stat found {};
    if (descriptor_ >= 0 && ::fstat(descriptor_, &found) == 0 && S_ISREG(found.st_mode)) stamp_ = stamp_of(found);
  }
  ~PlainFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  const FileStamp& stamp() const { return stamp_; }

  // Less than asked for where the file ends.
  std::string read(int64_t offset, int64_t bytes) const {
    std::string text;
    bytes = std::min(bytes, stamp_.size - offset);
    if (bytes <= 0) return text;
    text.resize(static_cast<size_t>(bytes));
    size_t got = 0;
    while (got < text.size()) {
      const ssize_t more = ::pread(descriptor_, text.data() + got, text.size() - got, offset + static_cast<int64_t>(got));
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) break;
      got += static_cast<size_t>(more);
    }
    text.resize(got);
    return text;
  }

 private:
  int descriptor_;
  FileStamp stamp_;
};

FileStamp stamp_of(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) ? stamp_of(found) : FileStamp();
}

// Nothing if there is no such file.
std::optional<std::string> read_plain(const std::string& path) {
  const PlainFile file(path);
  if (!file.stamp().exists()) return std::nullopt;
  if (file.stamp().size > kMostBytes)
    throw std::runtime_error(fmt::format("'{}' has {} bytes, more than a file of its kind may have", path, file.stamp().size));
  return file.read(0, file.stamp().size);
}

// Calls `use` with each whole line, without its end. Returns the bytes that they took.
template <class Use> size_t for_each_line(std::string_view text, const Use& use) {
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) use(text.substr(begin, end - begin));
  return begin;
}

// What the lines of a file of metrics say, some of them or all.
struct MetricsLook {
  int64_t step = 0;
  double loss = kUnknown;  // the last
  CurvePoints losses;
  std::map<std::string, double> evaluated;  // the last numbers of eval/, without that
  double items_per_second = kUnknown;
  std::string items;
};

void look_at(const support::MetricRecord& record, MetricsLook& look) {
  look.step = std::max(look.step, record.step);
  for (const auto& [name, value] : record.values) {
    const double* number = std::get_if<double>(&value);
    if (number == nullptr) continue;
    if (name == kLoss && std::isfinite(*number) && (look.losses.empty() || look.losses.back().first < record.step))
      look.losses.emplace_back(record.step, *number);
    if (name.starts_with(kEvaluation)) look.evaluated[name.substr(kEvaluation.size())] = *number;
    if (name.starts_with(kTraining) && name.ends_with(kPerSecond)) {
      look.items_per_second = *number;
      look.items = name.substr(kTraining.size(), name.size() - kTraining.size() - kPerSecond.size());
    }
  }
}

// Of a short file all lines with a loss, of a long one some here and there; and what its last lines say. Most of the time goes into reading
// JSON, so no more lines are read than are shown.
MetricsLook look_at_metrics(const PlainFile& file) {
  MetricsLook look;
  const auto take = [&](std::string_view line) {
    if (const auto record = support::parse_metrics_line(line)) look_at(*record, look);
  };
  const int64_t size = file.stamp().size, end = std::max<int64_t>(0, size - kTailBytes);
  const auto from_line = [&](int64_t offset, int64_t bytes) {  // what begins with a line
    std::string text = file.read(offset, bytes);
    if (offset > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
    return text;
  };
  const bool is_short = size <= kShortFile;
  for (int64_t i = 0; i < (is_short ? 1 : kSamples); ++i) {
    const std::string text = from_line(is_short ? 0 : size * i / kSamples, is_short ? size : kSampleBytes);
    const size_t before = look.losses.size();
    for_each_line(text, [&](std::string_view line) {
      if ((is_short || look.losses.size() == before) && line.find(kLoss) != std::string_view::npos) take(line);
    });
  }
  // From the end, until something of a training step and something of an evaluation was found.
  const std::string tail = from_line(end, kTailBytes);
  std::vector<std::string_view> lines;
  for_each_line(tail, [&](std::string_view line) { lines.push_back(line); });
  bool trained = false, evaluated = false;
  for (auto line = lines.rbegin(); line != lines.rend() && !(trained && evaluated); ++line) {
    const bool is_training = line->find(kTraining) != std::string_view::npos,
               is_evaluation = line->find(kEvaluation) != std::string_view::npos;
    if (line == lines.rbegin() || (is_training && !trained) || (is_evaluation && !evaluated)) take(*line);
    trained = trained || is_training, evaluated = evaluated || is_evaluation;
  }
  if (!look.losses.empty()) look.loss = look.losses.back().second;
  look.losses = thinned(look.losses, kSamples + 1);
  return look;
}

double value_of(const train::RunStatus& status, const std::string& name) {
  const auto found = status.values.find(name);
  return found == status.values.end() ? kUnknown : found->second;
}

}  // namespace

CurvePoints thinned(const CurvePoints& all, size_t most) {
  if (most == 0 || all.size() <= most) return all;
  CurvePoints points;
  for (size_t group = 0; group < most; ++group) {
    const size_t begin = group * all.size() / most, end = (group + 1) * all.size() / most;
    double x = 0, y = 0;
    for (size_t i = begin; i < end; ++i) x += static_cast<double>(all[i].first), y += all[i].second;
    const auto count = static_cast<double>(end - begin);
    points.emplace_back(std::llround(x / count), y / count);
  }
  points.back().first = all.back().first;  // the curve ends where the run is
  return points;
}

// What was read of a run, and the stamps of the files that it was read from.
struct WatchedFolder::RunFiles {
  FileStamp config, status, metrics, note, log;
  std::string config_problem, status_problem;
  MetricsLook look;
  WatchedRun run;
};

struct WatchedFolder::SweepFiles {
  FileStamp sweep, results;
  WatchedSweep found;
};

// A file of metrics that is read whole, and from there on what is new in it.
class WatchedFolder::Metrics {
 public:
  uint64_t asked = 0;
  std::map<std::string, CurvePoints> curves;

  void read(const std::string& path) {
    const PlainFile file(path);
    const FileStamp& stamp = file.stamp();
    if (stamp == read_) return;
    // Going on with a run replaces the file by one without the steps after its checkpoint.
    if (stamp.inode != read_.inode || stamp.size < offset_) offset_ = 0, curves.clear();
    read_ = stamp;
    offset_ = std::max(offset_, stamp.size - kMostMetrics);
    while (offset_ < stamp.size) {
      const std::string text = file.read(offset_, kPiece);
      const auto taken = static_cast<int64_t>(for_each_line(text, [&](std::string_view line) { take(line); }));
      if (taken == 0 && std::ssize(text) < kPiece) return;  // the last line is not whole yet
      offset_ += taken > 0 ? taken : kPiece;
    }
  }

 private:
  void take(std::string_view line) {
    const auto record = support::parse_metrics_line(line);
    if (!record) return;
    for (const auto& [name, value] : record->values)
      if (const double* number = std::get_if<double>(&value); number != nullptr && std::isfinite(*number))
        curves[name].emplace_back(record->step, *number);
  }

  FileStamp read_;
  int64_t offset_ = 0;
};

WatchedFolder::WatchedFolder(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  if (!fs::is_directory(folder_, error)) support::throw_file_error("watch", folder_, error ? error.value() : ENOTDIR);
}

WatchedFolder::~WatchedFolder() = default;

std::string WatchedFolder::path_of(const std::string& id) const { return id.empty() ? folder_ : folder_ + "/" + id; }

const WatchedRun* WatchedFolder::find(std::string_view id) const {
  const auto found =
      std::lower_bound(runs_.begin(), runs_.end(), id, [](const WatchedRun& run, std::string_view name) { return run.id < name; });
  return found != runs_.end() && found->id == id ? &*found : nullptr;
}

const WatchedSweep* WatchedFolder::find_sweep(std::string_view id) const {
  const auto found = std::find_if(sweeps_.begin(), sweeps_.end(), [&](const WatchedSweep& sweep) { return sweep.id == id; });
  return found != sweeps_.end() ? &*found : nullptr;
}

void WatchedFolder::look_for_folders(const std::string& folder, const std::string& id, int depth, int& entries,
                                     std::vector<std::string>& runs, std::vector<std::string>& sweeps) const {
  if (stamp_of(train::config_path(folder)).exists()) {
    runs.push_back(id);
    return;
  }
  if (stamp_of(folder + "/" + kSweepCopy).exists()) sweeps.push_back(id);
  if (depth == 0) return;
  std::error_code error;
  for (fs::directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error), end; !error && entry != end;
       entry.increment(error)) {
    if (--entries < 0) return;
    std::error_code gone;
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || entry->symlink_status(gone).type() != fs::file_type::directory || gone) continue;
    look_for_folders(folder + "/" + name, id.empty() ? name : id + "/" + name, depth - 1, entries, runs, sweeps);
  }
}

void WatchedFolder::refresh(double now) {
  std::vector<std::string> runs, sweeps;
  int entries = kMostEntries;
  look_for_folders(folder_, "", kDeepest, entries, runs, sweeps);
  std::sort(runs.begin(), runs.end());
  std::sort(sweeps.begin(), sweeps.end());
  const uint64_t before = revision_++;
  bool changed = false;
  const auto forget = [&](auto& files, const std::vector<std::string>& ids) {
    changed =
        std::erase_if(files, [&](const auto& entry) { return !std::binary_search(ids.begin(), ids.end(), entry.first); }) > 0 || changed;
  };
  forget(run_files_, runs);
  forget(sweep_files_, sweeps);
  runs_.clear();
  for (const std::string& id : runs) {
    std::unique_ptr<RunFiles>& files = run_files_[id];
    if (!files) files = std::make_unique<RunFiles>();
    refresh_run(id, *files, now);
    changed = changed || files->run.revision == revision_;
    runs_.push_back(files->run);
  }
  sweeps_.clear();
  for (const std::string& id : sweeps) {
    std::unique_ptr<SweepFiles>& files = sweep_files_[id];
    if (!files) files = std::make_unique<SweepFiles>();
    refresh_sweep(id, *files);
    changed = changed || files->found.revision == revision_;
    sweeps_.push_back(files->found);
  }
  if (!changed) revision_ = before;
  std::erase_if(followed_, [&](const auto& entry) { return find(entry.first) == nullptr; });
}

void WatchedFolder::refresh_run(const std::string& id, RunFiles& files, double now) {
  const std::string folder = path_of(id);
  WatchedRun& run = files.run;
  RunSummary& summary = run.summary;
  bool changed = run.revision == 0;
  if (changed) {
    const fs::path path = fs::absolute(folder).lexically_normal();
    summary.folder = folder;
    summary.name = (path.has_filename() ? path : path.parent_path()).filename().string();
    run.id = id.empty() ? summary.name : id;
    run.group = id.find('/') == std::string::npos ? "" : id.substr(0, id.rfind('/'));
  }
  const auto update = [&](FileStamp& known, const std::string& path, const auto& read) {
    const FileStamp now_there = stamp_of(path);
    if (now_there == known) return;
    known = now_there;
    changed = true;
    read(path);
  };
  // A file that cannot be read leaves what was known before, and a problem.
  const auto attempt = [](std::string& problem, const auto& read) {
    problem.clear();
    try {
      read();
    } catch (const std::runtime_error& error) {
      problem = error.what();
    }
  };
  update(files.config, train::config_path(folder), [&](const std::string& path) {
    attempt(files.config_problem, [&] {
      if (const auto text = read_plain(path)) summary.config = support::flatten_config(*text, path);
    });
  });
  const auto read_status = [&](const std::string& path) {
    attempt(files.status_problem, [&] {
      if (const auto text = read_plain(path)) summary.status = train::parse_status(*text, path);
    });
  };
  update(files.status, train::status_path(folder), read_status);
  update(files.metrics, train::metrics_path(folder), [&](const std::string& path) {
    const PlainFile file(path);
    files.look = file.stamp().exists() ? look_at_metrics(file) : MetricsLook();
  });
  update(files.note, train::note_path(folder), [&](const std::string& path) {
    std::string problem;
    run.note.clear();
    attempt(problem, [&] { run.note = read_plain(path).value_or(""); });
  });
  update(files.log, train::log_path(folder), [](const std::string&) {});
  if (const bool archived = stamp_of(train::archived_path(folder)).exists(); archived != run.archived)
    run.archived = archived, changed = true;

  const train::RunStatus& status = summary.status;
  const auto written = [](const FileStamp& stamp) { return stamp.exists() ? static_cast<double>(stamp.changed) * 1e-9 : 0; };
  run.updated = std::max({written(files.status), written(files.metrics), written(files.log)});
  std::string state = files.status.exists() && files.status_problem.empty() ? status.state : "unknown";
  if (state == "running") {
    const bool training = train::is_training(folder);
    // One that has ended between the two looks must not seem killed.
    if (!training) update(files.status, train::status_path(folder), read_status), state = status.state;
    if (state == "running" && !training) state = "killed";
    if (state == "running" && now - run.updated > kStaleSeconds) state = "stale";
  }
  if (state != summary.state) summary.state = state, changed = true;
  if (!changed) return;

  run.revision = revision_;
  summary.problems.clear();
  for (const std::string& problem : {files.config_problem, files.status_problem})
    if (!problem.empty()) summary.problems.push_back(problem);
  const MetricsLook& look = files.look;
  run.step = run.is_live() || state == "killed" ? std::max(status.step, look.step) : status.step;
  run.losses = look.losses;
  run.loss = look.loss;
  for (const auto& [name, value] : look.evaluated)
    if (run.is_live() || !status.values.contains(name)) summary.status.values[name] = value;
  run.items_per_second = look.items_per_second, run.items = look.items;
  for (const auto& [name, value] : status.values)
    if (run.items.empty() && name.ends_with(kPerSecond))
      run.items = name.substr(0, name.size() - kPerSecond.size()), run.items_per_second = value;
  const double seconds = value_of(status, "train_seconds");
  run.peak_share = value_of(status, "flops") / seconds / value_of(status, "peak_flops");
  if (!(run.peak_share > 0) || !std::isfinite(run.peak_share)) run.peak_share = kUnknown;
  // By the seconds of training until the last checkpoint; before it, by when this process began and when it last wrote metrics.
  double step_seconds = seconds / static_cast<double>(status.step);
  if (status.step == 0 || !(seconds > 0))
    step_seconds = (written(files.metrics) - support::utc_seconds(status.updated)) / static_cast<double>(look.step - status.step);
  run.seconds_left = run.is_live() && step_seconds > 0 && std::isfinite(step_seconds)
                         ? step_seconds * static_cast<double>(std::max<int64_t>(0, status.steps - run.step))
                         : kUnknown;
}

void WatchedFolder::refresh_sweep(const std::string& id, SweepFiles& files) {
  const std::string folder = path_of(id), sweep = folder + "/" + kSweepCopy, results = folder + "/" + kResultsCopy;
  const FileStamp sweep_now = stamp_of(sweep), results_now = stamp_of(results);
  WatchedSweep& found = files.found;
  if (found.revision > 0 && sweep_now == files.sweep && results_now == files.results) return;
  files.sweep = sweep_now, files.results = results_now;
  found.id = id.empty() ? fs::absolute(folder_).lexically_normal().filename().string() : id;
  found.revision = revision_;
  found.problem.clear();
  try {
    std::vector<PointResult> measured;
    if (results_now.exists()) measured = read_results(results);
    auto data = std::make_shared<SweepData>(gather(read_sweep(sweep), std::move(measured)));
    const std::string base = folder + "/" + kBaseCopy;
    data->sweep.base = stamp_of(base).exists() ? base : "";  // what the copy names is outside of the folder
    data->sweep.name = fs::path(found.id).filename().string();
    found.title = data->sweep.title, found.state = state_text(*data);
    found.data = std::move(data);
  } catch (const std::exception& error) {
    found.problem = error.what();
    found.data = nullptr;
  }
}

WatchedFolder::Metrics& WatchedFolder::follow(const WatchedRun& run) {
  std::unique_ptr<Metrics>& metrics = followed_[run.id];
  if (!metrics) metrics = std::make_unique<Metrics>();
  metrics->asked = ++asked_;
  Metrics& followed = *metrics;
  while (followed_.size() > kMostFollowed)
    followed_.erase(std::min_element(followed_.begin(), followed_.end(),
                                     [](const auto& a, const auto& b) { return a.second->asked < b.second->asked; }));
  followed.read(train::metrics_path(run.summary.folder));
  return followed;
}

std::vector<std::string> WatchedFolder::metrics(const WatchedRun& run) {
  std::vector<std::string> names;
  for (const auto& [name, points] : follow(run).curves) names.push_back(name);
  return names;
}

CurvePoints WatchedFolder::curve(const WatchedRun& run, const std::string& metric, size_t most) {
  const Metrics& followed = follow(run);
  const auto found = followed.curves.find(metric);
  return found == followed.curves.end() ? CurvePoints() : thinned(found->second, most);
}

std::vector<std::string> WatchedFolder::log(const WatchedRun& run, size_t most) const {
  std::vector<std::string> lines;
  const PlainFile file(train::log_path(run.summary.folder));
  if (!file.stamp().exists()) return lines;
  const int64_t offset = std::max<int64_t>(0, file.stamp().size - kTailBytes);
  std::string text = file.read(offset, kTailBytes);
  if (offset > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  for_each_line(text, [&](std::string_view line) { lines.emplace_back(line); });
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

void WatchedFolder::require_plain_files(const WatchedRun& run) const {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(run.summary.folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    const fs::file_type type = entry->symlink_status(gone).type();
    if (type != fs::file_type::regular && type != fs::file_type::directory && type != fs::file_type::not_found)
      throw std::runtime_error(fmt::format("'{}' is {}: hinge watch reads ordinary files below the folder alone", entry->path().string(),
                                           type == fs::file_type::symlink ? "a symbolic link" : "no ordinary file"));
  }
}

void WatchedFolder::write_note(const WatchedRun& run, std::string_view note) {
  const std::string path = train::note_path(run.summary.folder);
  if (note.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    std::error_code error;
    fs::remove(path, error);
    if (error) support::throw_file_error("remove", path, error.value());
  } else {
    support::AtomicFile(path).commit(note);
  }
}

void WatchedFolder::archive(const WatchedRun& run, bool archived) {
  const std::string path = train::archived_path(run.summary.folder);
  std::error_code error;
  if (archived)
    support::AtomicFile(path).commit(support::utc_now() + "\n");
  else if (fs::remove(path, error); error)
    support::throw_file_error("remove", path, error.value());
}

}  // namespace hinge::experiment
