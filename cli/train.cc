// hinge train: trains the model that a config describes, or goes on with a run.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "decode/translator.h"
#include "support/config.h"
#include "support/progress.h"
#include "train/run_folder.h"
#include "train/task_kind.h"
#include "train/trainer.h"
#include "train/translation_trainer.h"
#include "train/vit_trainer.h"

namespace hinge::cli {
namespace {

struct TrainOptions {
  std::string config, resume, out;
  std::vector<std::string> set;
  bool help_config = false;
};

// runs/fashion-20261116-093012, from configs/vit/fashion.toml.
std::string default_folder(const std::string& config) {
  const std::time_t now = std::time(nullptr);
  char time[32];
  std::strftime(time, sizeof(time), "%Y%m%d-%H%M%S", std::localtime(&now));
  return "runs/" + std::filesystem::path(config).stem().string() + "-" + time;
}

// The config of a file with the changes of --set.
template <class Config> Config read_config(const TrainOptions& options) {
  Config config;
  support::read_config(config, options.config);
  train::change_config(config, options.set);
  return config;
}

// The keys of a file's config with its values, or, of a task, with their
// defaults; without either, of all tasks.
int help_config(const TrainOptions& options) {
  bool any = false;
  const auto describe = [&](train::TaskKind kind, const auto& defaults) {
    using Config = std::decay_t<decltype(defaults)>;
    for (const auto& [word, of_word] : config_words(kind)) {
      if (of_word != kind) continue;
      const bool named = options.config == word, is_file = std::filesystem::exists(options.config);
      if (!options.config.empty() && !named && (!is_file || train::task_of_config(options.config) != kind)) continue;
      if (options.config.empty()) fmt::print("{}# task = \"{}\"\n", any ? "\n" : "", word);
      fmt::print("{}", support::describe_config(options.config.empty() || named ? defaults : read_config<Config>(options)));
      any = true;
    }
  };
  describe(train::TaskKind::vit, train::VitTrainConfig{});
  describe(train::TaskKind::translation, train::TranslationTrainConfig{});
  if (!any)
    throw UsageError(
        fmt::format("--help-config takes a config or a task (vit, "
                    "translation), but '{}' is neither",
                    options.config));
  return 0;
}

train::TrainResult begin(const TrainOptions& options, const std::string& folder) {
  train::require_new_run(folder);
  if (train::task_of_config(options.config) == train::TaskKind::translation) {
    const auto config = read_config<train::TranslationTrainConfig>(options);
    fmt::print(stderr, "Training into {}\n", folder);
    return train::train_translation(config, folder, stop_asked(), support::ProgressOutput::standard_error(), decode::greedy_bleu);
  }
  const auto config = read_config<train::VitTrainConfig>(options);
  fmt::print(stderr, "Training into {}\n", folder);
  return train::train_vit(config, folder, stop_asked());
}

train::TrainResult go_on(const std::string& folder, const std::vector<std::string>& changes) {
  if (!train::is_run(folder)) throw std::runtime_error(folder + " is not a run: it holds no config.toml");
  if (train::task_of_config(train::config_path(folder)) == train::TaskKind::translation)
    return train::resume_translation(folder, stop_asked(), support::ProgressOutput::standard_error(), decode::greedy_bleu, changes);
  return train::resume_vit(folder, stop_asked(), support::ProgressOutput::standard_error(), changes);
}

int train(const TrainOptions& options) {
  if (options.help_config) return help_config(options);
  if (options.config.empty() == options.resume.empty())
    throw UsageError(
        "hinge train takes a config (configs/vit/fashion.toml) or "
        "--resume RUN, and only one of them");
  if (!options.resume.empty() && !options.out.empty()) throw UsageError("--resume goes on in the folder of the run: it takes no --out");
  stop_when_asked("stopping, and saving what is done");

  const std::string folder = !options.resume.empty() ? options.resume : options.out.empty() ? default_folder(options.config) : options.out;
  const train::TrainResult result = options.resume.empty() ? begin(options, folder) : go_on(folder, options.set);
  const std::string speed = fmt::format("{:.0f} {}/s, {:.1f}% of the time waiting for {}", result.items_per_second, result.items,
                                        100 * result.waiting_share, result.items);
  if (!result.finished) {
    fmt::print("Stopped after step {} of {}; {}. Go on with: hinge train --resume {}\n", result.step, result.steps, speed, folder);
    return kStoppedCode;
  }
  fmt::print("Done: {} after {} steps; {}; {:.1f} M parameters, {} MB{}.\n", result.outcome, result.steps, speed,
             static_cast<double>(result.parameters) / 1e6, result.memory_bytes >> 20,
             result.skipped > 0 ? fmt::format("; {} files that cannot be decoded were skipped", result.skipped) : "");
  fmt::print("The run: {}\n", folder);
  return 0;
}

}  // namespace

void add_train(Command parent) {
  auto options = std::make_shared<TrainOptions>();
  Command command = parent.subcommand("train", "Train the model of a config, or go on with a run");
  command.option("config", options->config, "CONFIG", "A TOML file, such as configs/vit/fashion.toml");
  command
      .option("--set", options->set, "KEY=VALUE",
              "Change a key of the config, e.g. --set model.attention.h=gelu; with --resume: optim.*, train.* and data.on_error")
      .one_at_a_time();
  command.option("--out", options->out, "FOLDER", "Folder of the new run (default: runs/CONFIG-TIME)");
  command.option("--resume", options->resume, "RUN", "Go on with the run in this folder, from its last checkpoint");
  command.flag("--help-config", options->help_config,
               "List all keys of CONFIG, or of a task (vit, translation) with "
               "their defaults, and exit");
  command.run([options] { return train(*options); });
}

}  // namespace hinge::cli
