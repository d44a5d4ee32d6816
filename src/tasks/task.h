// Tasks: what can be trained. Each has a folder of its own here, with its config, data, training step, evaluation and report, and a line in
// table.cc. What the commands ask of a task goes through the struct below; no other part of the program knows which tasks there are.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decode/translation_options.h"
#include "experiment/html_report.h"
#include "experiment/runs.h"
#include "support/config.h"
#include "support/progress.h"
#include "train/config.h"
#include "train/run_folder.h"
#include "train/train_result.h"

namespace hinge::distributed {
class ProcessGroup;
}

namespace hinge::tasks {

// Something was asked of a task that it does not have: wrong usage of a command.
struct RequestError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A config as a command line gives it: a TOML file and changes ("optim.lr=1e-4").
struct ConfigSource {
  std::string file;
  std::vector<std::string> changes = {};
};

// What is assumed of data that are not on this machine: {"images", 1281167}.
using Assumptions = std::map<std::string, double>;

struct CostRequest {
  std::vector<ConfigSource> configs;
  Assumptions assumed = {};                                     // empty: the data are there
  std::function<void(int64_t done)> progress = [](int64_t) {};  // configs
};

// What a training takes, evaluations aside.
struct TrainingCost {
  int64_t parameters = 0, steps = 0;
  double flops = 0;
  double seconds = 0;  // on one thread of this machine, by a measurement
};

struct EvalRequest {
  std::string run;
  train::Which which = train::Which::best;
  std::string data = {};                                // empty: the run's own
  std::vector<std::string> splits = {};                 // parts of the data; none: what training evaluates on
  std::vector<std::string> classes = {};                // predict only among these
  std::vector<std::string> changes = {};                // of the run's config: "data.document_tokens=256", "model.image_size=56"
  std::string length = {};                              // another length rule; empty: the run's own
  std::string pp = {};                                  // another preprocessing; empty: the run's own
  std::optional<decode::TranslationOptions> bleu = {};  // translate, and score the translations
  distributed::ProcessGroup* group = nullptr;           // processes that share the work, and have the same result; null: this one alone
};

struct EvalReport {
  train::ChosenWeights weights;
  std::string text;     // for a person: begins with what it was measured on, "500 images of ..."
  nlohmann::json json;  // the same for a program
};

// What a trained model makes of something that a user gives it, for a person to see.
enum class ExampleKind { none, picture, sentence };
struct ExamplePicture {
  std::string title, type, bytes;  // type: "image/png"
};
struct Example {
  int64_t step = 0;                                          // of the weights
  std::vector<std::pair<std::string, double>> classes = {};  // with their probabilities, the likeliest first
  std::string text = {};                                     // a translation
  std::vector<std::pair<std::string, double>> numbers = {};  // about the attention: "share of exact zeros"
  std::vector<ExamplePicture> pictures = {};                 // maps of attention
};

struct ExportRequest {
  std::string from;  // a config or a run
  std::vector<std::string> changes = {};
  std::string split, out;  // out: the beginning of the files' names
};

// All functions throw std::runtime_error. Those that may be null say so: not every task has them.
struct Task {
  std::string name;         // its word in configs: task = "vision"
  std::string former_name;  // its word in former versions; empty: none

  // hinge train. `stop` may be set at any time, by a signal handler for example: the run saves a checkpoint and returns. `group`: the
  // processes that train together; null for this one alone.
  std::string (*describe_config)(const std::optional<ConfigSource>& source);  // all keys; without a source with their defaults
  train::TrainResult (*train)(const ConfigSource& config, const std::string& folder, const std::atomic<bool>& stop,
                              support::ProgressOutput output, distributed::ProcessGroup* group);
  train::TrainResult (*resume)(const std::string& run, const std::vector<std::string>& changes, const std::atomic<bool>& stop,
                               support::ProgressOutput output, distributed::ProcessGroup* group);

  // hinge sweep: the keys of a config whose values are not the defaults. A key that is added later does not change them.
  support::FlatConfig (*changed_keys)(const ConfigSource& source);
  // hinge sweep --dry-run: what the configs cost, each, and the names of what can be assumed of data.
  std::vector<TrainingCost> (*costs)(const CostRequest& request);
  std::vector<std::string> assumptions;

  // hinge eval
  EvalReport (*evaluate)(const EvalRequest& request);
  std::string eval_help;  // what --data, --split and the other options are, for the help

  // hinge runs
  experiment::ScoreFormat scores;

  // hinge report. The sections come after the curves; a run that is not in them gets a problem that says why. Beside the runs, only files
  // in the folder `within` are read; empty: any. May be null.
  std::string report_title;
  std::vector<experiment::ReportCurve> curves;
  std::vector<experiment::ReportSection> (*report_sections)(std::vector<experiment::RunSummary>& runs, const std::string& within) = nullptr;

  // hinge watch: what the best weights of a run make of a JPEG or PNG file's bytes, or of a sentence; on the calling thread alone. May be
  // null.
  ExampleKind example_kind = ExampleKind::none;
  Example (*example)(const std::string& run, const std::string& input) = nullptr;

  // hinge data export: writes a part of the data as plain files and says which; notes go to standard error. May be null.
  std::string (*export_data)(const ExportRequest& request) = nullptr;
};

// The table.
const std::vector<const Task*>& all();

// The task of a config, by its key `task`; without the key the first of the table. Throws support::ConfigError for a task that there is
// not.
const Task& of_config(const std::string& file);
const Task& of_config(const support::FlatConfig& config, const std::string& file);
const Task& of_run(const std::string& run);

// Throws unless `run` is of the task that `command` ("hinge predict") is for.
void require_task(const std::string& run, const std::string& task, const std::string& command);

// How the scores of a run are shown; plain numbers for a run of no task that there is.
const experiment::ScoreFormat& score_format(const experiment::RunSummary& run);

// The page that compares runs of one task; `title` may be empty. Throws std::runtime_error for runs of several tasks. Beside the runs, only
// files in the folder `within` are read; empty: any.
experiment::Report compare(std::vector<experiment::RunSummary> runs, const std::string& title, const std::string& within = "");

// ---- for the tasks themselves

template <class Config> Config read_config(const ConfigSource& source) {
  Config config;
  support::read_config(config, source.file);
  train::change_config(config, source.changes);
  return config;
}

template <class Config> std::string describe_config(const std::optional<ConfigSource>& source) {
  return support::describe_config(source ? read_config<Config>(*source) : Config());
}

template <class Config> support::FlatConfig changed_keys(const ConfigSource& source) {
  support::FlatConfig keys;
  for (const support::ConfigDifference& difference : support::config_differences(read_config<Config>(source), Config()))
    keys.emplace_back(difference.key, difference.values.front());
  return keys;
}

}  // namespace hinge::tasks
