#include "tasks/translation/evaluate_run.h"

#include <fmt/format.h>

#include <memory>

#include "support/progress.h"
#include "tasks/translation/evaluation.h"
#include "tasks/translation/run_text.h"
#include "tasks/translation/trained_model.h"
#include "text/batches.h"
#include "text/corpus.h"

namespace hinge::translation {

tasks::EvalReport evaluate_run(const tasks::EvalRequest& request) {
  if (!request.classes.empty()) throw tasks::RequestError("--classes is for runs of images; a translation has no classes");
  if (!request.changes.empty() || !request.length.empty() || !request.pp.empty())
    throw tasks::RequestError("--set, --length and --pp are for runs of images; a translation is evaluated as it was trained");
  if (!request.data.empty() && !request.split.empty())
    throw tasks::RequestError("--data names two files, --split a part of the run's own text: give one of them");
  const std::string given = !request.data.empty() ? request.data : request.split.empty() ? "valid" : request.split;
  if (request.data.empty()) parse_part("--split", given);
  if (!request.data.empty() && request.data.find(',') == std::string::npos)
    throw tasks::RequestError(fmt::format("--data '{}' is not allowed: give two files, SOURCE,TARGET", given));
  const TrainedModel trained = load(request.run, request.which);
  const auto corpus = std::make_shared<const text::Corpus>(read_part_or_files("--data", given, trained.config), trained.vocabulary,
                                                           trained.config.data.corpus);
  text::Batches batches(corpus, batch_options(trained.config, /*training=*/false));
  Evaluation result;
  {
    support::Progress progress("eval", batches.steps(0));
    result = *evaluate(*trained.model, batches, [&](int64_t done, int64_t) { return progress.update(done, {}), true; });
  }
  tasks::EvalReport report{trained.weights, {}, {}};
  const char* items = trained.config.data.corpus.document_tokens > 0 ? "parts of documents" : "pairs";
  report.text = fmt::format("{} {} of {}, {} target tokens\n", corpus->size(), items, given, result.tokens);
  report.text += fmt::format("  loss            {:.4f}\n  perplexity      {:.3f}\n  token accuracy  {:.2f}%\n", result.loss(),
                             result.perplexity(), 100 * result.accuracy());
  for (const auto& [reason, count] : corpus->skipped()) report.text += fmt::format("  left out: {} {}\n", count, reason);
  report.json = {{"data", given},         {"items", corpus->size()},           {"tokens", result.tokens},
                 {"loss", result.loss()}, {"perplexity", result.perplexity()}, {"token_accuracy", result.accuracy()}};
  return report;
}

}  // namespace hinge::translation
