// All runs and sweeps below a folder as they are now, also while others train into them: what `hinge watch` shows. No user interface here.
//
// Looking again is cheap: a file that has not changed is not read again, and of a long file of metrics only some lines are, until its
// curves are asked for. Files may be half written or disappear at any time: a run shows what can be read of it. Nothing outside of the
// folder is read: symbolic links below it are passed over.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiment/runs.h"
#include "experiment/sweep_data.h"

namespace hinge::experiment {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// What tells one content of a file from another, without reading it.
struct FileStamp {
  uint64_t inode = 0;
  int64_t size = -1;    // -1: there is no such file
  int64_t changed = 0;  // nanoseconds since 1970

  bool operator==(const FileStamp&) const = default;
  bool exists() const { return size >= 0; }
};

using CurvePoints = std::vector<std::pair<int64_t, double>>;  // step and value

// The means of groups of points, so that there are at most `most`.
CurvePoints thinned(const CurvePoints& all, size_t most);

struct WatchedRun {
  std::string id;     // its path below the folder
  std::string group;  // the path above it; empty: directly in the folder
  // Its metrics are empty. States are those of `hinge runs`, and "stale" for one whose process lives and has written nothing for long.
  RunSummary summary;
  int64_t step = 0;                // by the last line of its metrics, which is younger than its status
  double seconds_left = kUnknown;  // of training, evaluations aside
  double items_per_second = kUnknown;
  std::string items = {};        // what these are: "images"
  double peak_share = kUnknown;  // of the multiply-adds that the machine can do
  double loss = kUnknown;        // the last
  CurvePoints losses = {};       // a few, evenly spread over the run
  std::string note = {};         // what a user says of it
  bool archived = false;
  double updated = kUnknown;  // when it last wrote something: seconds since 1970
  uint64_t revision = 0;      // that of the folder when this run changed last

  const std::string& state() const { return summary.state; }
  int64_t steps() const { return summary.status.steps; }
  bool is_live() const { return summary.state == "running" || summary.state == "stale"; }
};

struct WatchedSweep {
  std::string id;                              // its path below the folder
  std::string title = {}, state = {};          // state: "210 points: 204 done, ..."
  std::string problem = {};                    // why it cannot be shown; empty: it can
  std::shared_ptr<const SweepData> data = {};  // null: it cannot be shown
  uint64_t revision = 0;
};

// A run that says it is running, whose process lives, and that has written nothing for so many seconds is stale.
inline constexpr double kStaleSeconds = 1800;

class WatchedFolder {
 public:
  // Throws std::runtime_error if there is no such folder.
  explicit WatchedFolder(std::string folder);
  ~WatchedFolder();
  WatchedFolder(const WatchedFolder&) = delete;
  WatchedFolder& operator=(const WatchedFolder&) = delete;

  const std::string& folder() const { return folder_; }
  void refresh(double now = static_cast<double>(std::time(nullptr)));

  uint64_t revision() const { return revision_; }                // grows with every change that a refresh finds
  const std::vector<WatchedRun>& runs() const { return runs_; }  // by id
  const std::vector<WatchedSweep>& sweeps() const { return sweeps_; }
  const WatchedRun* find(std::string_view id) const;  // null: there is none
  const WatchedSweep* find_sweep(std::string_view id) const;

  // The names of the numbers in a run's metrics, and the points of one of them: the means of groups, so that there are at most `most`.
  std::vector<std::string> metrics(const WatchedRun& run);
  CurvePoints curve(const WatchedRun& run, const std::string& metric, size_t most);

  // The last lines that a run has said.
  std::vector<std::string> log(const WatchedRun& run, size_t most) const;

  // Throws std::runtime_error if there is a symbolic link or anything but folders and ordinary files in the run, before something else
  // reads it that follows them.
  void require_plain_files(const WatchedRun& run) const;

  // What a user says of a run; an empty note goes. Both are files in the run. Throw std::runtime_error.
  void write_note(const WatchedRun& run, std::string_view note);
  void archive(const WatchedRun& run, bool archived);

 private:
  struct RunFiles;
  struct SweepFiles;
  class Metrics;

  void look_for_folders(const std::string& folder, const std::string& id, int depth, int& entries, std::vector<std::string>& runs,
                        std::vector<std::string>& sweeps) const;
  std::string path_of(const std::string& id) const;
  void refresh_run(const std::string& id, RunFiles& files, double now);
  void refresh_sweep(const std::string& id, SweepFiles& files);
  Metrics& follow(const WatchedRun& run);

  std::string folder_;
  uint64_t revision_ = 0;
  std::vector<WatchedRun> runs_;
  std::vector<WatchedSweep> sweeps_;
  std::map<std::string, std::unique_ptr<RunFiles>, std::less<>> run_files_;
  std::map<std::string, std::unique_ptr<SweepFiles>, std::less<>> sweep_files_;
  std::map<std::string, std::unique_ptr<Metrics>> followed_;  // files of metrics that are read whole
  uint64_t asked_ = 0;                                        // how often one was
};

}  // namespace hinge::experiment
