// Training a translation model into a run folder, from the start or from its last checkpoint.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "text/vocabulary.h"
#include "train/trainer.h"
#include "train/translation_config.h"

namespace hinge::train {

// The BLEU of a model's translations of `sources`, which are tokens with their end token, by whoever can decode: training itself cannot.
// Greedy is enough. Calls `progress` every few sentences with the number of those that are done, and returns nothing if it was false before
// all were.
using BleuProgress = std::function<bool(int64_t done, int64_t all)>;
using BleuFunction = std::function<std::optional<double>(const models::Seq2Seq& model, const text::Vocabulary& vocabulary,
                                                         const std::vector<std::vector<int32_t>>& sources,
                                                         const std::vector<std::string>& references, const BleuProgress& progress)>;

// Begins a new run in `folder`, or goes on with the one there. `stop` may be set at any time, by a signal handler for example: the run
// saves a checkpoint and returns. Without `bleu`, train.bleu_sentences must be 0. `changes` ("optim.lr=1e-4") are stored in the run's
// config before it goes on. Throws std::runtime_error.
TrainResult train_translation(const TranslationTrainConfig& config, const std::string& folder, const std::atomic<bool>& stop,
                              support::ProgressOutput output = support::ProgressOutput::standard_error(), BleuFunction bleu = {});
TrainResult resume_translation(const std::string& folder, const std::atomic<bool>& stop,
                               support::ProgressOutput output = support::ProgressOutput::standard_error(), BleuFunction bleu = {},
                               const std::vector<std::string>& changes = {});

}  // namespace hinge::train
