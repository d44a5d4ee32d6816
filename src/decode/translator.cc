#include "decode/translator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <stdexcept>

#include "decode/team.h"
#include "ops/gemm.h"
#include "ops/parallel.h"
#include "text/score.h"
#include "text/unicode.h"

namespace hinge::decode {
namespace {

// The decoder as the search sees it.
class ModelSteps : public StepFunction {
 public:
  ModelSteps(const models::Seq2Seq& model, const models::Sequences& source, nn::SequenceRanks* ranks) : decoder_(model, source, ranks) {}

  const float* step(std::span<const int64_t> tokens) override {
    logits_ = decoder_.step(tokens).contiguous();
    return logits_.data_ptr<float>();
  }
  void reorder(std::span<const int64_t> indices) override { decoder_.reorder(indices); }

 private:
  DecoderSteps decoder_;
  at::Tensor logits_;
};

using SourceIterator = std::vector<Source>::const_iterator;

// Behind as many sources as have at most so many tokens together, or behind one that has more.
SourceIterator end_of_group(SourceIterator first, SourceIterator last, int64_t tokens) {
  SourceIterator end = first;
  do {
    tokens -= static_cast<int64_t>(end->size());
    ++end;
  } while (end != last && static_cast<int64_t>(end->size()) <= tokens);
  return end;
}

}  // namespace

std::vector<std::vector<Hypothesis>> decode_batch(const models::Seq2Seq& model, const std::vector<Source>& sources,
                                                  const SearchProblem& problem, const SearchOptions& options, SearchCounts* counts,
                                                  nn::SequenceRanks* ranks) {
  const at::NoGradGuard guard;
  std::vector<std::vector<int64_t>> rows;
  for (const Source& source : sources) rows.emplace_back(source.begin(), source.end());
  ModelSteps steps(model, models::sequences_of(rows), ranks);
  AtenParallel parallel;
  return search(steps, problem, options, parallel, counts);
}

Translator::Translator(const models::Seq2Seq& model, const text::Vocabulary& vocabulary, const TranslationOptions& options,
                       nn::SequenceRanks* ranks)
    : model_(model), vocabulary_(vocabulary), options_(options), weights_(std::make_shared<PackedWeights>()), ranks_(ranks) {
  check(options_.search);
  if (!(options_.length_factor >= 0 && std::isfinite(options_.length_factor)) || options_.length_extra < 0 ||
      options_.length_factor + static_cast<double>(options_.length_extra) <= 0)
    throw std::runtime_error(fmt::format(
        "translations of at most {} times the source's tokens and {} more are impossible: neither may be negative, and one must be above 0",
        options_.length_factor, options_.length_extra));
  if (options_.batch_tokens < 1)
    throw std::runtime_error(fmt::format("batches of {} tokens are impossible: give at least 1", options_.batch_tokens));
}

Source Translator::encode(std::string_view text) const {
  Source source = vocabulary_.encode(text);
  source.push_back(vocabulary_.eos());
  if (static_cast<int64_t>(source.size()) > max_tokens())
    throw std::runtime_error(
        fmt::format("has {} tokens, but the model reads at most {} (its model.max_length); split it", source.size(), max_tokens()));
  return source;
}

Translator::Translations Translator::translate(const std::vector<Source>& sources, const Progress& progress) const {
  Translations translations(sources.size());
  std::vector<size_t> wanted;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].size() > 1)
      wanted.push_back(i), lengths.push_back(static_cast<int64_t>(sources[i].size()));
    else
      translations[i].emplace_back();
  }
  SearchProblem common{vocabulary_.size(), vocabulary_.bos(), vocabulary_.eos(), {vocabulary_.bos(), vocabulary_.unk()}, {}};
  if (vocabulary_.pad() >= 0) common.forbidden.push_back(vocabulary_.pad());
  const auto translate_batch = [&](const std::vector<size_t>& batch) {
    std::vector<Source> group;
    SearchProblem problem = common;
    for (const size_t i : batch) {
      group.push_back(sources[wanted[i]]);
      const double most = options_.length_factor * static_cast<double>(lengths[i]) + static_cast<double>(options_.length_extra);
      const auto limit = static_cast<double>(max_tokens());
      problem.longest.push_back(std::max<int64_t>(1, static_cast<int64_t>(std::min(most, limit))));
    }
    const PackedWeights::Use use(*weights_);
    const std::vector<std::vector<Hypothesis>> found = decode_batch(model_, group, problem, options_.search, nullptr, ranks_);
    for (size_t i = 0; i < batch.size(); ++i)
      for (const Hypothesis& one : found[i])
        // Pieces of bytes can spell line ends.
        translations[wanted[batch[i]]].push_back(
            {text::collapse_spaces(vocabulary_.decode(one.tokens)), one.score, one.log_probability, one.tokens});
  };
  const std::vector<std::vector<size_t>> batches = batches_by_length(lengths, options_.batch_tokens);
  auto done = static_cast<int64_t>(sources.size() - wanted.size());
  std::mutex reporting;
  std::atomic<bool> goes_on = true;
  const auto take_batch = [&](int64_t number) {
    if (!goes_on) return;
    const std::vector<size_t>& batch = batches[static_cast<size_t>(number)];
    translate_batch(batch);
    const std::scoped_lock lock(reporting);
    done += static_cast<int64_t>(batch.size());
    if (progress && goes_on && !progress(done, static_cast<int64_t>(sources.size()))) goes_on = false;
  };
  if (ranks_)
    for (int64_t number = 0; number < std::ssize(batches); ++number) take_batch(number);  // their exchanges follow one another
  else
    run_side_by_side(std::ssize(batches), take_batch);
  return translations;
}

TranslationCounts Translator::translate_in_groups(const std::vector<Source>& sources, const Take& take, const Progress& progress) const {
  const auto started = std::chrono::steady_clock::now();
  TranslationCounts counts;
  counts.all = static_cast<int64_t>(sources.size());
  bool stopped = false;
  const auto goes_on = [&](int64_t done) {
    stopped = stopped || (progress && !progress(done, counts.all));
    return !stopped;
  };
  const int64_t batches = std::max<int64_t>(kBatchesOfAGroup, 2 * AtenParallel().workers());
  auto first = sources.begin();
  while (first != sources.end() && goes_on(counts.done)) {
    const int64_t before = counts.done;
    const auto end = end_of_group(first, sources.end(), batches * options_.batch_tokens);
    Translations group = translate(std::vector<Source>(first, end), [&](int64_t done, int64_t) { return goes_on(before + done); });
    group.erase(std::find_if(group.begin(), group.end(), [](const auto& best) { return best.empty(); }), group.end());
    for (const auto& best : group) counts.tokens += static_cast<int64_t>(best.at(0).ids.size()) + 1;
    counts.done += static_cast<int64_t>(group.size());
    take(static_cast<size_t>(before), group);
    if (stopped) break;
    first = end;
  }
  counts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return counts;
}

TranslationCounts& TranslationCounts::operator+=(const TranslationCounts& more) {
  all += more.all, done += more.done, tokens += more.tokens, seconds += more.seconds;
  return *this;
}

TranslatedTexts translate_texts(const Translator& translator, const std::vector<std::string>& texts, const Translator::Progress& progress) {
  std::vector<Source> sources;
  std::vector<size_t> numbers;  // of their texts
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      sources.push_back(translator.encode(texts[i]));
      numbers.push_back(i);
    } catch (const std::runtime_error&) {
      // more tokens than the model reads
    }
  }
  TranslatedTexts result;
  result.translations.resize(texts.size());
  const auto take = [&](size_t first, const Translator::Translations& translations) {
    for (size_t i = 0; i < translations.size(); ++i)
      for (const Translation& one : translations[i]) result.translations[numbers[first + i]].push_back(one.text);
  };
  result.counts = translator.translate_in_groups(sources, take, progress);
  return result;
}

std::optional<std::vector<std::string>> greedy_translations(const models::Seq2Seq& model, const text::Vocabulary& vocabulary,
                                                            const std::vector<Source>& sources, const Translator::Progress& progress) {
  TranslationOptions options;
  options.search.beam = 1;
  const Translator translator(model, vocabulary, options);
  std::vector<std::string> translated;
  for (std::vector<Translation>& best : translator.translate(sources, progress)) {
    if (best.empty()) return {};
    translated.push_back(std::move(best[0].text));
  }
  return translated;
}

std::optional<double> greedy_bleu(const models::Seq2Seq& model, const text::Vocabulary& vocabulary, const std::vector<Source>& sources,
                                  const std::vector<std::string>& references, const Translator::Progress& progress) {
  const std::optional<std::vector<std::string>> translated = greedy_translations(model, vocabulary, sources, progress);
  if (!translated) return {};
  return text::bleu({translated->begin(), translated->end()}, {references.begin(), references.end()}).score;
}

}  // namespace hinge::decode
