// Runs the points of a sweep, several side by side, each as a process of its own: training, then the sweep's measures. What is done is in
// the file of results; everything else can be lost at any time. Which tasks there are is not known here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiment/sweep.h"
#include "support/config.h"
#include "support/progress.h"

namespace hinge::experiment {

// The keys of the base config with these changes whose values are not the defaults. Throws support::ConfigError.
using ConfigKeys = std::function<support::FlatConfig(const std::vector<std::string>& changes)>;

// The same for equal configs on every machine, and for those that differ only in where the data are and how the work is shared out.
std::string config_hash(support::FlatConfig keys);

struct SweepOptions {
  std::string folder;            // of the runs, the claims and the logs; may be shared by several processes and machines
  int jobs = 1, threads = 1;     // points side by side, and the threads of each
  int64_t part = 1, parts = 1;   // of the points: the third of eight
  bool drop_stale = false;       // remove results of points whose config has changed
  std::string program;           // the hinge command
  std::string version, machine;  // for the results
  ConfigKeys keys;
};

struct SweepOutcome {
  int64_t done = 0, diverged = 0, failed = 0, left = 0;  // of this process' part; left: not run because it was stopped
};

// The folder for the runs of a sweep, if the user names none.
inline std::string default_folder(const Sweep& sweep) { return "runs/sweeps/" + sweep.name; }

// Where the results are.
std::string results_path(const Sweep& sweep, const std::string& folder);

// In the folder of the runs, for those who watch it: copies of the sweep's file, its base config and the results, wherever these are.
inline constexpr const char *kSweepCopy = "sweep.toml", *kBaseCopy = "base.toml", *kResultsCopy = "results.jsonl";

// The points of this process' part that have no result yet, in their order. Throws as run_sweep does.
std::vector<SweepPoint> points_to_run(const Sweep& sweep, const SweepOptions& options);

// Runs them. Throws support::ConfigError or std::runtime_error for what is wrong with the sweep as a whole; a point that fails
// is an outcome. `stop` may be set at any time: the runs save what is done and end.
SweepOutcome run_sweep(const Sweep& sweep, const SweepOptions& options, const std::atomic<bool>& stop, support::ProgressOutput output);

// The numbers in what a command has printed as JSON: nested names joined by dots, other signs than letters and digits as _. An element of
// a list goes by its "name"; one that has none goes by the list's if it is alone, and is left out else.
std::vector<std::pair<std::string, double>> numbers_in(const nlohmann::json& json);

}  // namespace hinge::experiment
