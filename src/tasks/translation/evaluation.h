// How well a translation model predicts a text, and the batches that it is trained and measured on.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

#include "models/seq2seq.h"
#include "tasks/translation/config.h"
#include "text/batches.h"
#include "train/processes.h"

namespace hinge::translation {

// A batch as the model reads it.
struct ModelBatch {
  models::Sequences source, target;
  at::Tensor labels;

  explicit ModelBatch(const text::TextBatch& batch);
};

// Those of a run's config: shuffled in training, in order else.
text::BatchOptions batch_options(const Config& config, bool training);

// Steps of that many epochs, or `most` if there are more. Looks at no epoch behind that.
int64_t steps_of(text::Batches& batches, double epochs, int64_t most);

struct Evaluation {
  double nll = 0;  // sum over the target's tokens of - log p
  int64_t tokens = 0, right = 0;

  double loss() const { return nll / static_cast<double>(tokens); }
  double perplexity() const { return std::exp(loss()); }
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(tokens); }
};

// Over one epoch of `batches`, which `processes` share; all have the same result. Calls `progress` after each with the number of those that
// are done here; nothing if it was false, on any process, before all were.
std::optional<Evaluation> evaluate(const models::Seq2Seq& model, text::Batches& batches,
                                   const std::function<bool(int64_t done, int64_t all)>& progress,
                                   const train::Processes& processes = train::Processes(nullptr));

}  // namespace hinge::translation
