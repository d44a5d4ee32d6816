// A trained translation model, from the folder of its run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/seq2seq.h"
#include "text/vocabulary.h"
#include "train/run_folder.h"
#include "train/translation_config.h"

namespace hinge::train {

struct LoadedTranslation {
  TranslationTrainConfig config;  // resolved: the vocabulary's size and the sizes of the model are filled in
  text::Vocabulary vocabulary;
  std::unique_ptr<models::Seq2Seq> model;
  Checkpoint checkpoint;
  bool averaged = false;                         // its weights are the mean of several checkpoints
  int64_t source_tokens = 0, target_tokens = 0;  // of the training text
};

// best: of the lowest validation loss, be it a checkpoint or the mean that a finished run has made. `notes`: what was passed over on the
// way (unusable checkpoints), for the user. Throws std::runtime_error.
LoadedTranslation load_translation(const std::string& run, Which which, std::vector<std::string>* notes = nullptr);

std::string vocabulary_path(const std::string& run);

// What every checkpoint of a translation says beside its weights: its vocabulary, the languages and the attentions' length rules.
nlohmann::json checkpoint_state(const TranslationTrainConfig& config, const text::Vocabulary& vocabulary);

// Throws std::runtime_error unless this is the vocabulary of the checkpoint.
void require_vocabulary(const text::Vocabulary& vocabulary, const Checkpoint& checkpoint, const std::string& run);
// Throws std::runtime_error if the run's config has other length rules than its weights were trained with.
void require_length_rules(const models::Seq2SeqConfig& model, const Checkpoint& checkpoint, const std::string& run);

}  // namespace hinge::train
