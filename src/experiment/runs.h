// The runs in a folder, side by side: state, progress, score, speed, and the config keys in which they differ.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiment/table.h"
#include "support/config.h"
#include "support/jsonl.h"
#include "train/run_folder.h"

namespace hinge::experiment {

struct RunSummary {
  std::string folder, name;
  std::string state;  // as in the status, but "killed" for one that says running and has no process
  train::RunStatus status;
  support::FlatConfig config;
  std::vector<support::MetricRecord> metrics;
  std::vector<std::string> problems;  // files that could not be read
};

// A damaged file becomes a problem of its run, not an error; a folder that holds no run throws std::runtime_error.
RunSummary read_run(const std::string& folder);

// The runs directly in `folder`, by name; if the folder is itself a run, only that. Throws if there is no such folder.
std::vector<RunSummary> find_runs(const std::string& folder);

// Two folders may end in the same name: such runs get their folders as names.
void tell_apart(std::vector<RunSummary>& runs);

// The config keys whose values are not the same in all runs; one value a run.
std::vector<support::ConfigDifference> differences(const std::vector<RunSummary>& runs);

// A value of a config for people: a plain text without its quotes.
std::string unquoted(const std::string& value);

// How the scores of a run are shown.
struct ScoreFormat {
  struct Column {
    std::string title, value;     // value: its name among those of the status
    std::string (*text)(double);  // the value for a person
  };
  std::string (*best)(double score);  // the best score for a person
  std::vector<Column> columns;
};
using ScoreFormatOf = std::function<const ScoreFormat&(const RunSummary& run)>;

// State, best score, the columns of the runs' scores, speed and the like, and the config keys that differ.
Table run_table(const std::vector<RunSummary>& runs, const ScoreFormatOf& format_of);

}  // namespace hinge::experiment
