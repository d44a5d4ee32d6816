// hinge eval: how well a trained model does on the data of its task.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/trained_model.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

struct EvalOptions {
  RunOptions run;
  std::string data, split, classes, length, pp;
  std::vector<std::string> set;
  bool json = false;
};

int eval(const EvalOptions& options) {
  const std::string& run = options.run.run;
  const tasks::EvalRequest request{
      .run = run,
      .which = which_weights(options.run),
      .data = options.data,
      .split = options.split,
      .classes = options.classes.empty() ? std::vector<std::string>() : read_names(options.classes),
      .changes = options.set,
      .length = options.length,
      .pp = options.pp,
  };
  set_threads(options.run);
  tasks::EvalReport report = tasks::of_run(run).evaluate(request);
  tell_skipped(report.weights);
  if (options.json) {
    report.json.update({{"run", run}, {"step", report.weights.checkpoint.step}, {"averaged", report.weights.averaged}});
    fmt::print("{}", json_text(report.json));
    return 0;
  }
  fmt::print("{} at step {}{} on {}", run, report.weights.checkpoint.step, report.weights.averaged ? ", averaged weights," : "",
             report.text);
  return 0;
}

}  // namespace

void add_eval(Command parent) {
  auto options = std::make_shared<EvalOptions>();
  Command command = parent.subcommand("eval", "Measure a trained model on data of its task: accuracy, loss, perplexity");
  add_run(command, options->run);
  command.option("--data", options->data, "DATA", "Other data than the run's, see below");
  command.option("--split", options->split, "NAME", "Which part of the data (default: what training evaluates on)");
  command.option("--classes", options->classes, "FILE", "Predict only among some classes, see below");
  command.option("--set", options->set, "KEY=VALUE", "Change a key of the model's config, see below").one_at_a_time();
  command.option("--length", options->length, "RULE", "Another length rule of the attention, see below");
  command.option("--pp", options->pp, "STEPS", "Another preprocessing than the run's, see below");
  command.flag("--json", options->json, "Print JSON instead of text");
  std::string footer = "What a run takes depends on its task:";
  for (const tasks::Task* task : tasks::all()) footer += fmt::format("\n  {}: {}", task->name, task->eval_help);
  command.footer(footer);
  command.run([options] { return eval(*options); });
}

}  // namespace hinge::cli
