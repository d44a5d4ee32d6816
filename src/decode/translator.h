// Translation of texts with a trained model: pieces, batches by length, search, text again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/translation_options.h"
#include "models/seq2seq.h"
#include "text/vocabulary.h"

namespace hinge {
class PackedWeights;
}

namespace hinge::decode {

struct Translation {
  std::string text;
  double score = 0, log_probability = 0;
  std::vector<int32_t> ids;  // its pieces, without the end token
};

// A text as the model reads it: its pieces, and the end token.
using Source = std::vector<int32_t>;

// What a translation of many sources has done.
struct TranslationCounts {
  int64_t all = 0, done = 0;  // sources; fewer are done if the work was stopped
  int64_t tokens = 0;         // of the best translations, end tokens included
  double seconds = 0;

  double tokens_per_second() const { return static_cast<double>(tokens) / std::max(seconds, 1e-9); }
  TranslationCounts& operator+=(const TranslationCounts& more);
};

class Translator {
 public:
  // Keeps references to both, and the model's weights once more in a layout for products of few rows: they must not change any more.
  // Throws std::runtime_error for options that are not allowed. With ranks, this is rank 0 of a team (decode/team.h).
  Translator(const models::Seq2Seq& model, const text::Vocabulary& vocabulary, const TranslationOptions& options,
             nn::SequenceRanks* ranks = nullptr);

  const TranslationOptions& options() const { return options_; }

  // Throws std::runtime_error if the text has more tokens than the model reads: "has 120 tokens, but ...".
  Source encode(std::string_view text) const;
  // The most tokens that the model reads, end token included.
  int64_t max_tokens() const { return model_.config().max_length; }

  // Of each source its best translations, best first, in the order of the sources. A source without pieces has one translation, which is
  // empty. `progress` is called after each batch with the number of sources that are done, by whichever thread has done it, one at a time;
  // false ends the work after the batches at hand, and what is not done then has no translations.
  using Translations = std::vector<std::vector<Translation>>;
  using Progress = std::function<bool(int64_t done, int64_t all)>;
  Translations translate(const std::vector<Source>& sources, const Progress& progress = {}) const;

  // The same for many sources: group by group, in order, `take` gets the translations of the sources from `first` on as soon as they are
  // done. They are not all if `progress`, which is also asked before each group, was false: of the group at hand, `take` then gets those
  // before the first that is not done.
  using Take = std::function<void(size_t first, const Translations& translations)>;
  TranslationCounts translate_in_groups(const std::vector<Source>& sources, const Take& take, const Progress& progress = {}) const;

  // The batches of a group, at least, whose sources are sorted by length into them. A batch takes as many steps as its longest source asks
  // for, and the last of a group is not full: with 32 of them a batch holds sources of nearly one length, and half a batch in a group is
  // little, while what is done does not have to wait for long.
  static constexpr int64_t kBatchesOfAGroup = 32;

 private:
  const models::Seq2Seq& model_;
  const text::Vocabulary& vocabulary_;
  TranslationOptions options_;
  std::shared_ptr<PackedWeights> weights_;
  nn::SequenceRanks* ranks_;
};

// Of each text its translations, best first; none of a text that has more tokens than the model reads.
struct TranslatedTexts {
  std::vector<std::vector<std::string>> translations;
  TranslationCounts counts;
};
TranslatedTexts translate_texts(const Translator& translator, const std::vector<std::string>& texts,
                                const Translator::Progress& progress = {});

// The hypotheses behind them: `sources` with their end tokens, none of them empty.
std::vector<std::vector<Hypothesis>> decode_batch(const models::Seq2Seq& model, const std::vector<Source>& sources,
                                                  const SearchProblem& problem, const SearchOptions& options,
                                                  SearchCounts* counts = nullptr, nn::SequenceRanks* ranks = nullptr);

// Greedy translations, for evaluations in training. Nothing if `progress` was false before all were done.
std::optional<std::vector<std::string>> greedy_translations(const models::Seq2Seq& model, const text::Vocabulary& vocabulary,
                                                            const std::vector<Source>& sources, const Translator::Progress& progress = {});
// BLEU of greedy translations, for evaluations in training (train::BleuFunction). Nothing if `progress` was false before all were done.
std::optional<double> greedy_bleu(const models::Seq2Seq& model, const text::Vocabulary& vocabulary, const std::vector<Source>& sources,
                                  const std::vector<std::string>& references, const Translator::Progress& progress = {});

}  // namespace hinge::decode
