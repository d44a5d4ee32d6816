#include "experiment/translation_report.h"

#include <fmt/format.h>

namespace hinge::experiment {

Report translation_report(std::vector<RunSummary> runs, const std::string& title) {
  tell_apart(runs);
  return {.title = title,
          .subtitle = fmt::format("{} run{} side by side", runs.size(), runs.size() == 1 ? "" : "s"),
          .runs = std::move(runs),
          .curves = {{"train/loss", "Training loss, label smoothing included", "nats per token"},
                     {"eval/loss", "Loss on the validation text", "nats per token"},
                     {"eval/bleu", "BLEU of greedy translations of validation sentences", "BLEU"},
                     {"eval/perplexity", "Perplexity on the validation text", "perplexity"},
                     {"train/regulariser", "The ReLUFormer's regulariser", "L_reg"},
                     {"train/gradient_norm", "Norm of the gradient", "norm"}},
          .sections = {}};
}

}  // namespace hinge::experiment
