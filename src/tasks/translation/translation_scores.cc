#include "tasks/translation/translation_scores.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/resegment.h"
#include "text/score.h"

namespace hinge::translation {
namespace {

std::vector<std::string_view> views(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

// The targets of an item's sentences.
std::vector<std::string> sentences_of(const EncodedText& text, const text::Corpus::Place& place) {
  std::vector<std::string> sentences;
  for (int64_t i = 0; i < place.pairs; ++i)
    sentences.push_back(text.text.documents[static_cast<size_t>(place.document)].pairs[static_cast<size_t>(place.first + i)].target);
  return sentences;
}

// `translations` of the items of the text, in their order.
TranslationScores score(const EncodedText& text, const std::vector<std::string>& translations, bool documents) {
  std::vector<std::string> hypotheses, references, joined;
  for (size_t i = 0; i < translations.size(); ++i) {
    const text::Corpus::Place& place = text.corpus->place(static_cast<int64_t>(i));
    const std::vector<std::string> sentences = sentences_of(text, place);
    const std::vector<std::string> parts =
        sentences.size() == 1 ? std::vector<std::string>{translations[i]} : text::resegment(translations[i], sentences);
    hypotheses.insert(hypotheses.end(), parts.begin(), parts.end());
    references.insert(references.end(), sentences.begin(), sentences.end());
    if (documents) joined.push_back(text::joined(text.text, place).target);
  }
  const text::Bleu bleu = text::bleu(views(hypotheses), views(references));
  TranslationScores scores{bleu.score, text::chrf(views(hypotheses), views(references)).score, bleu.brevity_penalty, bleu.hypothesis_length,
                           bleu.reference_length};
  if (documents) scores.document_bleu = text::bleu(views(translations), views(joined)).score;
  return scores;
}

// All processes have the translations of all, and what they have done together, in the time of the slowest.
void share(const train::Processes& processes, std::vector<std::string>& translations, decode::TranslationCounts& counts) {
  const nlohmann::json own = {{"translations", translations}, {"tokens", counts.tokens}, {"seconds", counts.seconds}};
  const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(own);
  translations.clear();
  counts = {};
  for (const std::string& text : processes.gather({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    const nlohmann::json part = nlohmann::json::from_msgpack(text);
    for (const nlohmann::json& translation : part.at("translations")) translations.push_back(translation.get<std::string>());
    counts.tokens += part.at("tokens").get<int64_t>();
    counts.seconds = std::max(counts.seconds, part.at("seconds").get<double>());
  }
  counts.all = counts.done = std::ssize(translations);
}

}  // namespace

ScoredTranslations score_translations(const TrainedModel& trained, const std::vector<EncodedText>& texts,
                                      const decode::TranslationOptions& options, const decode::Translator::Progress& progress,
                                      const train::Processes& processes) {
  std::vector<decode::Source> sources;
  for (const EncodedText& text : texts)
    for (int64_t i = 0; i < text.corpus->size(); ++i) sources.emplace_back(text.corpus->source(i).begin(), text.corpus->source(i).end());
  const auto [begin_own, end_own] = processes.own_part(std::ssize(sources));
  sources = {sources.begin() + begin_own, sources.begin() + end_own};
  std::vector<std::string> translations(sources.size());
  const decode::Translator translator(*trained.model, trained.vocabulary, options);
  ScoredTranslations result;
  result.counts = translator.translate_in_groups(
      sources,
      [&](size_t first, const decode::Translator::Translations& group) {
        for (size_t i = 0; i < group.size(); ++i) translations[first + i] = group[i].at(0).text;
      },
      progress);
  if (processes.count() > 1) share(processes, translations, result.counts);
  std::ptrdiff_t first = 0;
  for (const EncodedText& text : texts) {
    const auto begin = translations.begin() + first;
    first += text.corpus->size();
    result.scores.push_back(score(text, {begin, translations.begin() + first}, trained.config.data.corpus.document_tokens > 0));
  }
  return result;
}

}  // namespace hinge::translation
