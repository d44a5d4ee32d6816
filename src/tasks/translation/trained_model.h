// A trained translation model, from the folder of its run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/seq2seq.h"
#include "tasks/translation/config.h"
#include "text/vocabulary.h"
#include "train/run_folder.h"

namespace hinge::translation {

struct TrainedModel {
  Config config;  // resolved: the vocabulary's size and the sizes of the model are filled in
  text::Vocabulary vocabulary;
  std::unique_ptr<models::Seq2Seq> model;
  train::ChosenWeights weights;
  int64_t source_tokens = 0, target_tokens = 0;  // of the training text
};

// With changes of the config ("data.document_tokens=256"), which the weights must fit. Throws std::runtime_error.
TrainedModel load(const std::string& run, train::Which which, const std::vector<std::string>& changes = {});

inline constexpr const char* kVocabularyFile = "vocabulary.model";  // in the folder of a run
text::Vocabulary load_vocabulary(const std::string& run);

// What every checkpoint of a translation says beside its weights: its vocabulary, the languages and the attentions' length rules.
nlohmann::json checkpoint_state(const Config& config, const text::Vocabulary& vocabulary);

// Throws std::runtime_error unless this is the vocabulary of the checkpoint.
void require_vocabulary(const text::Vocabulary& vocabulary, const train::Checkpoint& checkpoint, const std::string& run);
// Throws std::runtime_error if the run's config has other length rules than its weights were trained with.
void require_length_rules(const models::Seq2SeqConfig& model, const train::Checkpoint& checkpoint, const std::string& run);

}  // namespace hinge::translation
