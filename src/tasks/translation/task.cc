// Translation with encoder-decoder transformers, as the commands see it.
#include "tasks/task.h"

#include <fmt/format.h>

#include "tasks/translation/config.h"
#include "tasks/translation/cost.h"
#include "tasks/translation/evaluate_run.h"
#include "tasks/translation/example.h"
#include "tasks/translation/export.h"
#include "tasks/translation/training.h"

namespace hinge::translation {
namespace {

std::string two_digits(double value) { return fmt::format("{:.2f}", value); }
std::string one_digit(double value) { return fmt::format("{:.1f}", value); }

train::TrainResult train_config(const tasks::ConfigSource& source, const std::string& folder, const std::atomic<bool>& stop,
                                support::ProgressOutput output, distributed::ProcessGroup* group) {
  const auto config = tasks::read_config<Config>(source);
  output.write(fmt::format("Training into {}\n", folder));
  return train(config, folder, stop, std::move(output), decode::greedy_bleu, group);
}

train::TrainResult resume_run(const std::string& run, const std::vector<std::string>& changes, const std::atomic<bool>& stop,
                              support::ProgressOutput output, distributed::ProcessGroup* group) {
  return resume(run, changes, stop, std::move(output), decode::greedy_bleu, group);
}

}  // namespace

const tasks::Task& task() {
  static const tasks::Task kTask = {
      .name = "translation",
      .former_name = {},
      .describe_config = tasks::describe_config<Config>,
      .train = train_config,
      .resume = resume_run,
      .changed_keys = tasks::changed_keys<Config>,
      .costs = costs,
      .assumptions = {"pairs", "source_tokens", "target_tokens"},
      .evaluate = evaluate_run,
      .eval_help =
          "--data SOURCE,TARGET, two files of sentences; --split train, valid or test of the run's own text, or NAME of other files\n    "
          "NAME.LANGUAGE in its folder, several with commas; --bleu; --set data.document_tokens=N for other lengths",
      // The score is the validation loss with its sign changed.
      .scores = {.best = [](double score) { return fmt::format("loss {:.3f}", -score); },
                 .columns = {{"perplexity", "perplexity", two_digits},
                             {"BLEU", "bleu", one_digit},
                             {"averaged perplexity", "averaged_perplexity", two_digits},
                             {"averaged BLEU", "averaged_bleu", one_digit}}},
      .report_title = "Translation models compared",
      .curves = {{"train/loss", "Training loss, label smoothing included", "nats per token"},
                 {"eval/loss", "Loss on the validation text", "nats per token"},
                 {"eval/bleu", "BLEU of greedy translations of validation sentences", "BLEU"},
                 {"eval/perplexity", "Perplexity on the validation text", "perplexity"},
                 {"train/regulariser", "The ReLUFormer's regulariser", "L_reg"},
                 {"train/gradient_norm", "Norm of the gradient", "norm"}},
      .example_kind = tasks::ExampleKind::sentence,
      .example = example,
      .export_data = export_text,
  };
  return kTask;
}

}  // namespace hinge::translation
