// hinge train: trains the model that a config describes, or goes on with a run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/processes.h"
#include "distributed/process_group.h"
#include "support/progress.h"
#include "tasks/task.h"
#include "train/run_folder.h"

namespace hinge::cli {
namespace {

struct TrainOptions {
  std::string config, resume, out;
  std::vector<std::string> set;
  bool or_resume = false, help_config = false;
};

// runs/fashion-20261116-093012, from configs/vit/fashion.toml.
std::string default_folder(const std::string& config) {
  const std::time_t now = std::time(nullptr);
  char time[32];
  std::strftime(time, sizeof(time), "%Y%m%d-%H%M%S", std::localtime(&now));
  return "runs/" + std::filesystem::path(config).stem().string() + "-" + time;
}

std::string task_names() {
  std::vector<std::string> names;
  for (const tasks::Task* task : tasks::all()) names.push_back(task->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The keys of a file's config with its values, or, of a task, with their defaults; without either, of all tasks.
int help_config(const TrainOptions& options) {
  if (options.config.empty()) {
    for (const tasks::Task* task : tasks::all())
      fmt::print("{}# task = \"{}\"\n{}", task == tasks::all().front() ? "" : "\n", task->name, task->describe_config({}));
    return 0;
  }
  for (const tasks::Task* task : tasks::all())
    if (options.config == task->name) {
      fmt::print("{}", task->describe_config({}));
      return 0;
    }
  if (!std::filesystem::exists(options.config))
    throw UsageError(fmt::format("--help-config takes a config or a task ({}), but '{}' is neither", task_names(), options.config));
  fmt::print("{}", tasks::of_config(options.config).describe_config(tasks::ConfigSource{options.config, options.set}));
  return 0;
}

// What is to be done; with several processes, rank 0 says it.
struct Request {
  std::string folder;
  std::string resumed_task;  // empty: a new run
};

Request request_of(const TrainOptions& options) {
  if (!options.resume.empty()) return {options.resume, tasks::of_run(options.resume).name};
  const std::string folder = options.out.empty() ? default_folder(options.config) : options.out;
  if (options.or_resume && train::is_run(folder)) return {folder, tasks::of_run(folder).name};
  train::require_new_run(folder);
  return {folder, ""};
}

train::TrainResult run(const TrainOptions& options, const Request& request, const support::ProgressOutput& output,
                       distributed::ProcessGroup* group) {
  if (request.resumed_task.empty())
    return tasks::of_config(options.config).train({options.config, options.set}, request.folder, stop_asked(), output, group);
  // A run that is there keeps the config it has, but for changes that are asked for together with --resume.
  const std::vector<std::string> changes = options.resume.empty() ? std::vector<std::string>() : options.set;
  for (const tasks::Task* task : tasks::all())
    if (task->name == request.resumed_task) return task->resume(request.folder, changes, stop_asked(), output, group);
  throw std::logic_error("no task " + request.resumed_task);
}

// As one of several processes.
train::TrainResult run_with_others(const TrainOptions& options, const distributed::Environment& environment, Request& request) {
  return with_processes(environment, [&](distributed::ProcessGroup& group, const std::string& target) {
    const train::Processes processes(&group);
    const std::string said = processes.from_first([&] {
      request = request_of(options);
      return request.folder + "\n" + request.resumed_task;
    });
    request = {said.substr(0, said.rfind('\n')), said.substr(said.rfind('\n') + 1)};
    support::ProgressOutput output = support::ProgressOutput::standard_error();
    if (!processes.first()) output.write = [](std::string_view) {};
    output.write(fmt::format("{}; {}\n", group.description(), target));
    return run(options, request, output, &group);
  });
}

int train(const TrainOptions& options) {
  if (options.help_config) return help_config(options);
  if (options.config.empty() == options.resume.empty())
    throw UsageError("hinge train takes a config (configs/vit/fashion.toml) or --resume RUN, and only one of them");
  if (!options.resume.empty() && !options.out.empty()) throw UsageError("--resume continues in the folder of the run: it takes no --out");
  if (options.or_resume && options.out.empty()) throw UsageError("--or-resume needs --out, the folder of the run, which may exist already");
  const std::optional<distributed::Environment> environment = distributed::read_environment();
  stop_when_asked("stopping, and saving what is done");

  Request request;
  train::TrainResult result;
  if (environment) {
    result = run_with_others(options, *environment, request);
    if (environment->rank > 0) return result.finished ? 0 : kStoppedCode;
  } else {
    request = request_of(options);
    result = run(options, request, support::ProgressOutput::standard_error(), nullptr);
  }
  const std::string& folder = request.folder;
  const std::string speed = fmt::format("{:.0f} {}/s, {:.1f}% of the time waiting for {}", result.items_per_second, result.items,
                                        100 * result.waiting_share, result.items);
  if (!result.finished) {
    fmt::print("Stopped after step {} of {}; {}. Resume with: hinge train --resume {}\n", result.step, result.steps, speed, folder);
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
  Command command = parent.subcommand("train", "Train a model from a config, or resume a run");
  command.option("config", options->config, "CONFIG", "A TOML file, such as configs/vit/fashion.toml");
  command
      .option("--set", options->set, "KEY=VALUE",
              "Change a key of the config, e.g. --set model.attention.h=gelu; with --resume: optim.*, train.* and data.on_error")
      .one_at_a_time();
  command.option("--out", options->out, "FOLDER", "Folder of the new run (default: runs/CONFIG-TIME)");
  command.option("--resume", options->resume, "RUN", "Resume the run in this folder from its last checkpoint");
  command.flag("--or-resume", options->or_resume,
               "If the folder of --out holds a run already, resume it as it is: for launchers that start a command again");
  command.flag("--help-config", options->help_config,
               fmt::format("List all keys of CONFIG, or of a task ({}) with their defaults, and exit", task_names()));
  command.run([options] { return train(*options); });
}

}  // namespace hinge::cli
