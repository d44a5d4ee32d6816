// What the commands that use a trained model have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "tasks/translation/trained_model.h"
#include "tasks/vision/trained_model.h"
#include "train/run_folder.h"

namespace hinge::cli {

struct RunOptions {
  std::string run, checkpoint = "best", threads;
  std::vector<std::string> changes = {};  // of its config
};
// The arguments RUN, --checkpoint and --threads.
void add_run(Command command, RunOptions& options);
// --set, for commands that read text or images as the run's config says.
void add_changes(Command command, RunOptions& options);

// Each of these does a part of what the open functions below do.
train::Which which_weights(const RunOptions& options);
void set_threads(const RunOptions& options);
void tell_skipped(const train::ChosenWeights& weights);  // on standard error

// The model of a run, for a command ("hinge predict") that takes runs of this task. Says which checkpoints had to be passed over, and sets
// the number of threads.
vision::TrainedModel open_vision(const RunOptions& options, const std::string& command);
translation::TrainedModel open_translation(const RunOptions& options, const std::string& command);

// The names in a file, one per line; empty lines do not count.
std::vector<std::string> read_names(const std::string& path);

std::string json_text(const nlohmann::json& json);

// --json, alone or with a file: `path` is "-" then, or the file. `what` it is printed in place of: "text".
void add_json(Command command, std::string& path, const std::string& what);
void write_json(const std::string& path, const nlohmann::json& json);

}  // namespace hinge::cli
