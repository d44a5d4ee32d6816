// hinge train: trains the model that a config describes, or goes on with a run.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "support/config.h"
#include "train/vit_trainer.h"

namespace hinge::cli {
namespace {

struct Options {
  std::string config, resume, out;
  std::vector<std::string> set;
  bool help_config = false;
};

std::atomic<bool> stop_asked{false};

// The first Ctrl-C asks the run to save and end; the second ends the process.
extern "C" void ask_to_stop(int signal) {
  stop_asked = true;
  std::signal(signal, SIG_DFL);
}

// runs/fashion-20261116-093012, from configs/vit/fashion.toml.
std::string default_folder(const std::string& config) {
  const std::time_t now = std::time(nullptr);
  char time[32];
  std::strftime(time, sizeof(time), "%Y%m%d-%H%M%S", std::localtime(&now));
  return "runs/" + std::filesystem::path(config).stem().string() + "-" + time;
}

int train(const Options& options) {
  if (options.help_config) {
    fmt::print("{}", support::describe_config(train::VitTrainConfig{}));
    return 0;
  }
  if (options.config.empty() == options.resume.empty())
    throw UsageError("hinge train takes a config (configs/vit/fashion.toml) or --resume RUN, and only one of them");
  if (!options.resume.empty() && (!options.set.empty() || !options.out.empty()))
    throw UsageError("--resume goes on with the config stored in the run: it takes no --set and no --out");
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);

  std::string folder = options.resume;
  train::TrainResult result;
  if (folder.empty()) {
    train::VitTrainConfig config;
    support::read_config(config, options.config);
    for (const std::string& assignment : options.set) support::override_config(config, assignment);
    folder = options.out.empty() ? default_folder(options.config) : options.out;
    fmt::print(stderr, "Training into {}\n", folder);
    result = train::train_vit(config, folder, stop_asked);
  } else {
    result = train::resume_vit(folder, stop_asked);
  }
  if (!result.finished) {
    fmt::print("Stopped after step {} of {}. Go on with: hinge train --resume {}\n", result.step, result.steps, folder);
    return 0;
  }
  fmt::print(
      "Done: accuracy {:.2f}% (best {:.2f}%) after {} steps; {:.0f} images/s, {:.1f}% of the time waiting for images; {:.1f} M parameters, "
      "{} MB.\n",
      100 * result.accuracy, 100 * result.best, result.steps, result.images_per_second, 100 * result.waiting_share,
      static_cast<double>(result.parameters) / 1e6, result.memory_bytes >> 20);
  fmt::print("The run: {}\n", folder);
  return 0;
}

}  // namespace

void add_train(Command parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand("train", "Train the model of a config, or go on with a run");
  command.option("config", options->config, "CONFIG", "A TOML file, such as configs/vit/fashion.toml");
  command.option("--set", options->set, "KEY=VALUE", "Change a key of the config, e.g. --set model.attention.h=gelu").one_at_a_time();
  command.option("--out", options->out, "FOLDER", "Folder of the new run (default: runs/CONFIG-TIME)");
  command.option("--resume", options->resume, "RUN", "Go on with the run in this folder, from its last checkpoint");
  command.flag("--help-config", options->help_config, "List all keys of a config with their defaults and exit");
  command.run([options] { return train(*options); });
}

}  // namespace hinge::cli
