// What the commands that use a trained model have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "data/source.h"
#include "train/vit_run.h"

namespace hinge::cli {

struct ModelOptions {
  std::string run, checkpoint = "best";
};
// The arguments RUN and --checkpoint.
void add_model(Command command, ModelOptions& options);

// The model; says on standard error which checkpoints had to be passed over. Sets the number of threads to the run's.
train::LoadedVit open_model(const ModelOptions& options);

// "format" or "format:path", with the other keys of the run's data.
train::DataConfig parse_data(const std::string& option, const std::string& text, const train::DataConfig& of_run);

// The names in a file, one a line; empty lines do not count.
std::vector<std::string> read_names(const std::string& path);

std::string json_text(const nlohmann::json& json);

}  // namespace hinge::cli
