// hinge eval: how well a trained model does on the data of its task.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/processes.h"
#include "cli/search_options.h"
#include "cli/trained_model.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

struct EvalOptions {
  RunOptions run;
  std::string data, splits, classes, length, pp, json;
  bool bleu = false;
  SearchArguments search;
};

tasks::EvalRequest request_of(const EvalOptions& options) {
  tasks::EvalRequest request{.run = options.run.run, .which = which_weights(options.run), .data = options.data};
  if (!options.splits.empty()) request.splits = parse_list("--split", options.splits);
  if (!options.classes.empty()) request.classes = read_names(options.classes);
  request.changes = options.run.changes;
  request.length = options.length, request.pp = options.pp;
  if (options.bleu) request.bleu = search_options(options.search);
  if (!options.bleu && options.search.any()) throw UsageError("--beam and the other options of the search need --bleu");
  return request;
}

int eval(const EvalOptions& options) {
  const std::string& run = options.run.run;
  tasks::EvalRequest request = request_of(options);
  set_threads(options.run);
  const auto evaluate = [&](distributed::ProcessGroup* group) {
    request.group = group;
    return tasks::of_run(run).evaluate(request);
  };
  const std::optional<distributed::Environment> environment = distributed::read_environment();
  tasks::EvalReport report =
      environment ? with_processes(*environment, [&](distributed::ProcessGroup& group, const std::string&) { return evaluate(&group); })
                  : evaluate(nullptr);
  if (environment && environment->rank > 0) return 0;
  tell_skipped(report.weights);
  if (!options.json.empty()) {
    report.json.update({{"run", run}, {"step", report.weights.checkpoint.step}, {"averaged", report.weights.averaged}});
    write_json(options.json, report.json);
    return 0;
  }
  fmt::print("{} at step {}{} on {}", run, report.weights.checkpoint.step, report.weights.averaged ? ", averaged weights," : "",
             report.text);
  return 0;
}

}  // namespace

void add_eval(Command parent) {
  auto options = std::make_shared<EvalOptions>();
  Command command = parent.subcommand("eval", "Measure a trained model on data of its task: accuracy, loss, perplexity, BLEU");
  add_run(command, options->run);
  add_changes(command, options->run);
  command.option("--data", options->data, "DATA", "Other data than the run's, see below");
  command.option("--split", options->splits, "NAME", "Which part of the data (default: what training evaluates on)");
  command.option("--classes", options->classes, "FILE", "Predict only among some classes, see below");
  command.option("--length", options->length, "RULE", "Another length rule of the attention, see below");
  command.option("--pp", options->pp, "STEPS", "Another preprocessing than the run's, see below");
  add_json(command, options->json, "text");
  const char* translation = "Translation";
  command.flag("--bleu", options->bleu, "Translate the text, and score the translations: BLEU, chrF, tokens/s").group(translation);
  add_search(command, options->search, translation);
  std::string footer = "What a run takes depends on its task:";
  for (const tasks::Task* task : tasks::all()) footer += fmt::format("\n  {}: {}", task->name, task->eval_help);
  command.footer(footer);
  command.run([options] { return eval(*options); });
}

}  // namespace hinge::cli
