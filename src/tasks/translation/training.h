// Training a translation model into a run folder, from the start or from its last checkpoint.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decode/translator.h"
#include "distributed/process_group.h"
#include "support/progress.h"
#include "tasks/translation/config.h"
#include "text/vocabulary.h"
#include "train/train_result.h"

namespace hinge::translation {

// The BLEU of a model's translations of `sources`, which are tokens with their end token: decode::greedy_bleu, or another in tests. Calls
// `progress` every few sentences with the number of those that are done, and returns nothing if it was false before all were.
using BleuProgress = std::function<bool(int64_t done, int64_t all)>;
using BleuFunction = std::function<std::optional<double>(const models::Seq2Seq& model, const text::Vocabulary& vocabulary,
                                                         const std::vector<std::vector<int32_t>>& sources,
                                                         const std::vector<std::string>& references, const BleuProgress& progress)>;

// Begins a new run in `folder`, or goes on with the one there. `stop` may be set at any time, by a signal handler for example: the run
// saves a checkpoint and returns. `changes` ("optim.lr=1e-4") are stored in the run's config before it goes on. `group`: the processes that
// train together; null for this one alone. Rank 0 has the folder; several share the translations for BLEU and do not call `bleu`. Throws
// std::runtime_error.
train::TrainResult train(const Config& config, const std::string& folder, const std::atomic<bool>& stop,
                         support::ProgressOutput output = support::ProgressOutput::standard_error(),
                         BleuFunction bleu = decode::greedy_bleu, distributed::ProcessGroup* group = nullptr);
train::TrainResult resume(const std::string& folder, const std::vector<std::string>& changes, const std::atomic<bool>& stop,
                          support::ProgressOutput output = support::ProgressOutput::standard_error(),
                          BleuFunction bleu = decode::greedy_bleu, distributed::ProcessGroup* group = nullptr);

}  // namespace hinge::translation
