#include "cli/trained_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "data/files.h"
#include "support/atomic_file.h"
#include "tasks/task.h"
#include "train/trainer.h"

namespace hinge::cli {
namespace {

template <class Load> auto open(const RunOptions& options, const std::string& task, const std::string& command, const Load& load) {
  const train::Which which = which_weights(options);
  tasks::require_task(options.run, task, command);
  set_threads(options);
  auto trained = load(options.run, which, options.changes);
  tell_skipped(trained.weights);
  return trained;
}

}  // namespace

void add_run(Command command, RunOptions& options) {
  command.option("run", options.run, "RUN", "Run folder, made by hinge train or hinge weights import").required();
  command.option("--checkpoint", options.checkpoint, "WHICH",
                 "Which weights to use: best (highest evaluation score), latest, or averaged over the last checkpoints (default: best)");
  command.option("--threads", options.threads, "N", kThreadsMeaning);
}

void add_changes(Command command, RunOptions& options) {
  command.option("--set", options.changes, "KEY=VALUE", "Change a key of the run's config for this command, e.g. --set data.path=FOLDER")
      .one_at_a_time();
}

train::Which which_weights(const RunOptions& options) { return parse_word<train::Which>("--checkpoint", options.checkpoint); }

void set_threads(const RunOptions& options) { train::use_threads(parse_threads(options.threads)); }

void tell_skipped(const train::ChosenWeights& weights) {
  for (const std::string& skipped : weights.skipped) fmt::print(stderr, "skipping a checkpoint: {}\n", skipped);
}

vision::TrainedModel open_vision(const RunOptions& options, const std::string& command) {
  return open(options, "vision", command, vision::load);
}

translation::TrainedModel open_translation(const RunOptions& options, const std::string& command) {
  return open(options, "translation", command, translation::load);
}

std::vector<std::string> read_names(const std::string& path) {
  std::vector<std::string> names = data::read_lines(path);
  names.erase(std::remove(names.begin(), names.end(), ""), names.end());
  return names;
}

std::string json_text(const nlohmann::json& json) { return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"; }

void add_json(Command command, std::string& path, const std::string& what) {
  command.option_or_alone("--json", path, "-", "FILE", fmt::format("Print JSON instead of {}, or write it to FILE", what));
}

void write_json(const std::string& path, const nlohmann::json& json) {
  if (path == "-")
    fmt::print("{}", json_text(json));
  else
    support::AtomicFile(path).commit(json_text(json));
}

}  // namespace hinge::cli
