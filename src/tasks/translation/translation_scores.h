// What a model's translations of texts score.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/translator.h"
#include "tasks/translation/trained_model.h"
#include "text/corpus.h"
#include "text/parallel.h"
#include "train/processes.h"

namespace hinge::translation {

// A text as it is translated: `corpus` is made of `text`.
struct EncodedText {
  std::string name;
  text::ParallelText text;
  std::shared_ptr<const text::Corpus> corpus;
};

// Of one text, sentence by sentence, against its target side. The translation of a part of a document is cut into its sentences first
// (text/resegment.h), so that scores do not depend on how many sentences are translated together.
struct TranslationScores {
  double bleu = 0, chrf = 0, brevity_penalty = 1;
  int64_t hypothesis_length = 0, reference_length = 0;  // tokens of BLEU
  std::optional<double> document_bleu = {};             // of parts of documents, each scored as one segment
};

struct ScoredTranslations {
  std::vector<TranslationScores> scores;  // of each text
  decode::TranslationCounts counts;       // of all together
};

// Translates the items of all texts together, sorted by length, on all threads; each of the processes a part of them. Calls `progress`
// after each batch.
ScoredTranslations score_translations(const TrainedModel& trained, const std::vector<EncodedText>& texts,
                                      const decode::TranslationOptions& options, const decode::Translator::Progress& progress,
                                      const train::Processes& processes = train::Processes(nullptr));

}  // namespace hinge::translation
