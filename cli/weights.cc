// hinge weights: weights of vision transformers out of a run and into a new one, under timm's names.
#include <fmt/format.h>

#include <memory>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "eval/imported_run.h"
#include "models/timm_weights.h"
#include "support/config.h"
#include "support/safetensors.h"

namespace hinge::cli {
namespace {

struct ExportOptions {
  ModelOptions model;
  std::string file;
};

struct Import {
  std::string file, config, out, classes;
  std::vector<std::string> set;
  bool no_head = false;
};

int export_weights(const ExportOptions& options) {
  const train::LoadedVit loaded = open_model(options.model);
  const auto tensors = models::timm_weights(*loaded.model);
  std::vector<support::TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, support::Dtype::kF32, tensor.sizes().vec(), tensor.data_ptr()});
  support::write_safetensors(options.file, views, {{"format", "pt"}});
  fmt::print("{} tensors of step {} written to {}\n", views.size(), loaded.checkpoint.step, options.file);
  return 0;
}

int import_weights(const Import& options) {
  train::VitTrainConfig config;
  support::read_config(config, options.config);
  for (const std::string& assignment : options.set) support::override_config(config, assignment);
  eval::ImportOptions how;
  how.head = !options.no_head;
  if (!options.classes.empty()) how.classes = read_names(options.classes);
  for (const std::string& note : eval::import_timm_run(options.file, config, options.out, how)) fmt::print("Note: {}\n", note);
  fmt::print("The run: {0}\nTry it: hinge eval {0}. Train on with it: hinge train --resume {0}\n", options.out);
  return 0;
}

}  // namespace

void add_weights(CLI::App& app, Run& run) {
  CLI::App* weights = app.add_subcommand("weights", "Weights of vision transformers from and to timm");
  weights->require_subcommand(1);
  {
    auto options = std::make_shared<ExportOptions>();
    CLI::App* command = weights->add_subcommand("export", "Write a run's weights to a safetensors file, under timm's names");
    add_model(*command, options->model);
    command->add_option("file", options->file, "The file to write")->type_name("FILE.safetensors")->required();
    command->callback([options, &run] { run = [options] { return export_weights(*options); }; });
  }
  auto options = std::make_shared<Import>();
  CLI::App* command = weights->add_subcommand("import", "Make a run of the weights in a safetensors file that has timm's names");
  command->add_option("file", options->file, "The file to read")->type_name("FILE.safetensors")->required();
  command->add_option("--config", options->config, "The config of the model, as for hinge train")->type_name("CONFIG")->required();
  command->add_option("--set", options->set, "Change a key of the config, e.g. --set model.pool_first=true")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--out", options->out, "Folder of the new run")->type_name("RUN")->required();
  command->add_option("--classes", options->classes, "File with the names of the classes, one a line (default: those of the config's data)")
      ->type_name("FILE");
  command->add_flag("--no-head", options->no_head, "Leave the file's head out; the model's starts anew");
  command->callback([options, &run] { run = [options] { return import_weights(*options); }; });
}

}  // namespace hinge::cli
