#include "tasks/translation/evaluate_run.h"

#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string_view>

#include "support/config.h"
#include "support/progress.h"
#include "tasks/translation/evaluation.h"
#include "tasks/translation/run_text.h"
#include "tasks/translation/trained_model.h"
#include "tasks/translation/translation_scores.h"
#include "text/batches.h"
#include "text/corpus.h"
#include "train/weights.h"

namespace hinge::translation {
namespace {

// Rank 0 says how it goes.
support::ProgressOutput output_of(const train::Processes& processes) {
  support::ProgressOutput output = support::ProgressOutput::standard_error();
  if (!processes.first()) output.write = [](std::string_view) {};
  return output;
}

// The splits that are asked for, or the two files of --data.
std::vector<std::string> names_of(const tasks::EvalRequest& request) {
  if (!request.classes.empty()) throw tasks::RequestError("--classes is for runs of images; a translation has no classes");
  if (request.data.empty()) return request.splits.empty() ? std::vector<std::string>{"valid"} : request.splits;
  if (!request.splits.empty()) throw tasks::RequestError("--data names two files, --split parts of the run's own text: give one of them");
  if (request.data.find(',') == std::string::npos)
    throw tasks::RequestError(fmt::format("--data '{}' is not allowed: give two files, SOURCE,TARGET", request.data));
  return {request.data};
}

// Each of several processes reads the text, and encodes a part of it.
std::vector<EncodedText> read_texts(const TrainedModel& trained, const tasks::EvalRequest& request, const train::Processes& processes) {
  std::vector<EncodedText> texts;
  std::string description;
  if (processes.count() > 1) description = fmt::format("weights (hash {:016x})", train::hash_of_weights(trained.model->parameters()));
  for (const std::string& name : names_of(request)) {
    text::ParallelText text =
        request.data.empty() ? read_split("--split", name, trained.config) : read_split_or_files("--data", name, trained.config);
    if (processes.count() > 1) description += fmt::format(", {} of {}", described(text), name);
    texts.push_back({name, std::move(text), nullptr});
  }
  processes.require_same(support::write_config(trained.config), description);
  for (EncodedText& text : texts)
    text.corpus = std::make_shared<const text::Corpus>(text.text, trained.vocabulary, trained.config.data.corpus, readers_of(processes));
  return texts;
}

std::vector<Evaluation> evaluate_texts(const TrainedModel& trained, const std::vector<EncodedText>& texts,
                                       const train::Processes& processes) {
  std::vector<text::Batches> batches;
  std::vector<int64_t> own;  // batches of this process
  for (const EncodedText& text : texts) {
    batches.emplace_back(text.corpus, batch_options(trained.config, /*training=*/false));
    const auto [first, last] = processes.own_part(batches.back().steps(0));
    own.push_back(last - first);
  }
  support::Progress progress("eval", std::accumulate(own.begin(), own.end(), int64_t{0}), 0, output_of(processes));
  std::vector<Evaluation> results;
  int64_t before = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto shown = [&](int64_t done, int64_t) { return progress.update(before + done, {}), true; };
    results.push_back(*evaluate(*trained.model, batches[i], shown, processes));
    before += own[i];
  }
  return results;
}

// What is said of one text, or of several together.
struct Measured {
  int64_t items = 0, left_out = 0;
  Evaluation evaluation;
  std::optional<TranslationScores> scores;  // of several: means, but for the lengths
};

Measured measured(const EncodedText& text, const Evaluation& evaluation) {
  Measured result{text.corpus->size(), 0, evaluation, {}};
  for (const text::Counts& counts : {text.text.skipped, text.corpus->skipped()})
    for (const auto& [reason, count] : counts) result.left_out += count;
  return result;
}

Measured together(const std::vector<Measured>& parts) {
  Measured all;
  const auto count = static_cast<double>(parts.size());
  for (const Measured& part : parts) {
    all.items += part.items, all.left_out += part.left_out;
    all.evaluation.nll += part.evaluation.nll, all.evaluation.tokens += part.evaluation.tokens;
    all.evaluation.right += part.evaluation.right;
    if (!part.scores) continue;
    if (!all.scores) all.scores = {.brevity_penalty = 0};
    all.scores->bleu += part.scores->bleu / count, all.scores->chrf += part.scores->chrf / count;
    all.scores->brevity_penalty += part.scores->brevity_penalty / count;
    if (part.scores->document_bleu) all.scores->document_bleu = all.scores->document_bleu.value_or(0) + *part.scores->document_bleu / count;
    all.scores->hypothesis_length += part.scores->hypothesis_length, all.scores->reference_length += part.scores->reference_length;
  }
  return all;
}

double length_ratio(const TranslationScores& scores) {
  return static_cast<double>(scores.hypothesis_length) / static_cast<double>(scores.reference_length);
}

nlohmann::json to_json(const Measured& measured) {
  const Evaluation& result = measured.evaluation;
  nlohmann::json json = {{"items", measured.items}, {"left_out", measured.left_out},     {"tokens", result.tokens},
                         {"loss", result.loss()},   {"perplexity", result.perplexity()}, {"token_accuracy", result.accuracy()}};
  const std::optional<TranslationScores>& scores = measured.scores;
  if (scores)
    json.update({{"bleu", scores->bleu},
                 {"chrf", scores->chrf},
                 {"brevity_penalty", scores->brevity_penalty},
                 {"hypothesis_length", scores->hypothesis_length},
                 {"reference_length", scores->reference_length},
                 {"length_ratio", length_ratio(*scores)}});
  if (scores && scores->document_bleu) json["document_bleu"] = *scores->document_bleu;
  return json;
}

std::string scores_text(const Measured& measured) {
  const Evaluation& result = measured.evaluation;
  std::string text = fmt::format("  loss            {:.4f}\n  perplexity      {:.3f}\n  token accuracy  {:.2f}%\n", result.loss(),
                                 result.perplexity(), 100 * result.accuracy());
  const std::optional<TranslationScores>& scores = measured.scores;
  if (scores)
    text += fmt::format("  BLEU            {:.2f} (brevity penalty {:.3f}, length ratio {:.3f})\n  chrF            {:.2f}\n", scores->bleu,
                        scores->brevity_penalty, length_ratio(*scores), scores->chrf);
  if (scores && scores->document_bleu) text += fmt::format("  document BLEU   {:.2f}\n", *scores->document_bleu);
  return text;
}

std::string decoding_text(const decode::TranslationCounts& counts) {
  return fmt::format("  decoding        {} tokens in {:.1f} s: {:.0f} tokens/s\n", counts.tokens, counts.seconds,
                     counts.tokens_per_second());
}

}  // namespace

tasks::EvalReport evaluate_run(const tasks::EvalRequest& request) {
  if (!request.length.empty() || !request.pp.empty()) throw tasks::RequestError("--length and --pp are for runs of images");
  const TrainedModel trained = load(request.run, request.which, request.changes);
  check_lengths(trained.config);
  const train::Processes each(request.group);  // without teams
  train::Processes processes(request.group);
  if (request.group != nullptr) {
    models::require_splittable(trained.config.model, trained.config.train.sequence_parallel);
    processes.form_teams(trained.config.train.sequence_parallel);
  }
  const std::vector<EncodedText> texts = read_texts(trained, request, processes);
  const std::vector<Evaluation> evaluations = evaluate_texts(trained, texts, processes);
  std::vector<Measured> parts;
  for (size_t i = 0; i < texts.size(); ++i) parts.push_back(measured(texts[i], evaluations[i]));
  std::optional<ScoredTranslations> translations;
  if (request.bleu) {
    std::optional<support::Progress> progress;
    translations = score_translations(
        trained, texts, *request.bleu,
        [&](int64_t done, int64_t all) {
          if (!progress) progress.emplace("translate", all, done, output_of(each));
          return progress->update(done, {}), true;
        },
        each);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].scores = translations->scores[i];
  }

  tasks::EvalReport report{trained.weights, {}, {}};
  const Measured all = together(parts);
  report.json = to_json(all);
  std::string names;
  for (size_t i = 0; i < texts.size(); ++i) {
    names += (i > 0 ? ", " : "") + texts[i].name;
    if (texts.size() > 1) report.json["splits"][texts[i].name] = to_json(parts[i]);
  }
  report.json["data"] = names;
  const char* items = trained.config.data.corpus.document_tokens > 0 ? "parts of documents" : "pairs";
  report.text = fmt::format("{} {} of {}, {} target tokens\n", all.items, items, names, all.evaluation.tokens);
  report.text += scores_text(all);
  if (translations) {
    const decode::TranslationCounts& counts = translations->counts;
    report.json.update(
        {{"translated_tokens", counts.tokens}, {"decoding_seconds", counts.seconds}, {"tokens_per_second", counts.tokens_per_second()}});
    report.text += decoding_text(counts);
  }
  for (const EncodedText& text : texts)
    for (const auto& [reason, count] : text.corpus->skipped()) report.text += fmt::format("  left out: {} {}\n", count, reason);
  for (size_t i = 0; i < texts.size() && texts.size() > 1; ++i) report.text += texts[i].name + "\n" + scores_text(parts[i]);
  return report;
}

}  // namespace hinge::translation
