// What a model's translations of texts score.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/translator.h"
#include "tasks/translation/trained_model.h"
#include "text/corpus.h"
#include "text/parallel.h"

namespace hinge::translation {

// A text as it is translated: `corpus` is made of `text`.
struct EncodedText {
  std::string name;
  text::ParallelText text;
  std::shared_ptr<const text::Corpus> corpus;
};

// Of one text, against its target side.
struct TranslationScores {
  double bleu = 0, chrf = 0, brevity_penalty = 1;
  int64_t hypothesis_length = 0, reference_length = 0;  // tokens of BLEU
};

struct ScoredTranslations {
  std::vector<TranslationScores> scores;  // of each text
  decode::TranslationCounts counts;       // of all together
};

// Translates the items of all texts together, sorted by length, on all threads. Calls `progress` after each batch.
ScoredTranslations score_translations(const TrainedModel& trained, const std::vector<EncodedText>& texts,
                                      const decode::TranslationOptions& options, const decode::Translator::Progress& progress);

}  // namespace hinge::translation
