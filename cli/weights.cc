// hinge weights: weights of vision transformers out of a run and into a new one, under timm's names.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "models/timm_weights.h"
#include "support/safetensors.h"
#include "tasks/task.h"
#include "tasks/vision/imported_run.h"

namespace hinge::cli {
namespace {

struct ExportOptions {
  RunOptions run;
  std::string file;
};

struct Import {
  std::string file, config, out, classes;
  std::vector<std::string> set;
  bool no_head = false;
};

int export_weights(const ExportOptions& options) {
  const vision::TrainedModel trained = open_vision(options.run, "hinge weights export");
  const auto tensors = models::timm_weights(*trained.model);
  std::vector<support::TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, support::Dtype::kF32, tensor.sizes().vec(), tensor.data_ptr()});
  support::write_safetensors(options.file, views, {{"format", "pt"}});
  fmt::print("{} tensors of step {} written to {}\n", views.size(), trained.weights.checkpoint.step, options.file);
  const auto ours = [](const support::TensorView& view) { return !models::has_counterpart_in_timm(view.name); };
  if (const auto own = std::find_if(views.begin(), views.end(), ours); own != views.end())
    fmt::print("Note: {} of them have no counterpart in timm, such as {}; hinge weights import reads them\n",
               std::count_if(views.begin(), views.end(), ours), own->name);
  return 0;
}

int import_weights(const Import& options) {
  const auto config = tasks::read_config<vision::Config>({options.config, options.set});
  vision::ImportOptions how;
  how.head = !options.no_head;
  if (!options.classes.empty()) how.classes = read_names(options.classes);
  for (const std::string& note : vision::import_timm_run(options.file, config, options.out, how)) fmt::print("Note: {}\n", note);
  fmt::print("The run: {0}\nTry it: hinge eval {0}. Train on with it: hinge train --resume {0}\n", options.out);
  return 0;
}

}  // namespace

void add_weights(Command parent) {
  Command weights = parent.subcommand("weights", "Import and export timm weights");
  weights.require_subcommand();
  {
    auto options = std::make_shared<ExportOptions>();
    Command command = weights.subcommand("export", "Write a run's weights to a safetensors file, under timm's names");
    add_run(command, options->run);
    command.option("file", options->file, "FILE.safetensors", "The file to write").required();
    command.run([options] { return export_weights(*options); });
  }
  auto options = std::make_shared<Import>();
  Command command = weights.subcommand("import", "Make a run of the weights in a safetensors file that has timm's names");
  command.option("file", options->file, "FILE.safetensors", "The file to read").required();
  command.option("--config", options->config, "CONFIG", "The config of the model, as for hinge train").required();
  command.option("--set", options->set, "KEY=VALUE", "Change a key of the config, e.g. --set model.pool_first=true").one_at_a_time();
  command.option("--out", options->out, "RUN", "Folder of the new run").required();
  command.option("--classes", options->classes, "FILE",
                 "File with the names of the classes, one per line (default: those of the config's data)");
  command.flag("--no-head", options->no_head, "Do not import the head; start with a new one");
  command.run([options] { return import_weights(*options); });
}

}  // namespace hinge::cli
