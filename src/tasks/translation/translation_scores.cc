#include "tasks/translation/translation_scores.h"

#include <span>
#include <string_view>

#include "text/score.h"

namespace hinge::translation {
namespace {

TranslationScores score(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
  const std::vector<std::string_view> left(hypotheses.begin(), hypotheses.end()), right(references.begin(), references.end());
  const text::Bleu bleu = text::bleu(left, right);
  return {bleu.score, text::chrf(left, right).score, bleu.brevity_penalty, bleu.hypothesis_length, bleu.reference_length};
}

// `translations` of the items of the text, in their order.
TranslationScores score_text(const EncodedText& text, std::span<const std::string> translations) {
  std::vector<std::string> hypotheses, references;
  for (size_t i = 0; i < translations.size(); ++i) {
    hypotheses.push_back(translations[i]);
    references.push_back(text::joined(text.text, text.corpus->place(static_cast<int64_t>(i))).target);
  }
  return score(hypotheses, references);
}

}  // namespace

ScoredTranslations score_translations(const TrainedModel& trained, const std::vector<EncodedText>& texts,
                                      const decode::TranslationOptions& options, const decode::Translator::Progress& progress) {
  std::vector<decode::Source> sources;
  for (const EncodedText& text : texts)
    for (int64_t i = 0; i < text.corpus->size(); ++i) sources.emplace_back(text.corpus->source(i).begin(), text.corpus->source(i).end());
  std::vector<std::string> translations(sources.size());
  const decode::Translator translator(*trained.model, trained.vocabulary, options);
  ScoredTranslations result;
  result.counts = translator.translate_in_groups(
      sources,
      [&](size_t first, const decode::Translator::Translations& group) {
        for (size_t i = 0; i < group.size(); ++i) translations[first + i] = group[i].at(0).text;
      },
      progress);
  size_t first = 0;
  for (const EncodedText& text : texts) {
    const auto items = static_cast<size_t>(text.corpus->size());
    result.scores.push_back(score_text(text, std::span(translations).subspan(first, items)));
    first += items;
  }
  return result;
}

}  // namespace hinge::translation
