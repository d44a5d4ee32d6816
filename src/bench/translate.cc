#include "bench/translate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/rounds.h"
#include "bench/timing.h"
#include "bench/training_step.h"
#include "decode/translator.h"
#include "models/seq2seq.h"
#include "ops/gemm.h"
#include "ops/tensor_memory.h"
#include "support/process_memory.h"
#include "text/batches.h"
#include "train/flops.h"

namespace hinge::bench {
namespace {

using at::Tensor;

constexpr int64_t kVocabulary = 10000, kBos = 1, kEos = 2, kFirstPiece = 3, kBatchTokens = 4000;
constexpr int64_t kSentences = 16, kSentenceTokens = 25, kBeam = 4;  // of the case decode
constexpr double kLabelSmoothing = 0.1, kRegulariserWeight = 0.01;

std::vector<int64_t> some_tokens(int64_t n) {
  const Tensor drawn = at::randint(kFirstPiece, kVocabulary, {n}, at::kLong);
  return {drawn.data_ptr<int64_t>(), drawn.data_ptr<int64_t>() + n};
}

// Sentences' lengths in a real text: twenty quantiles (2.5%, 7.5%, ...) of Europarl's English sentences, in words and signs.
constexpr int64_t kQuantiles[] = {7, 10, 12, 14, 16, 18, 19, 21, 23, 25, 26, 28, 30, 33, 35, 38, 42, 46, 54, 69};
constexpr int64_t kUnevenTimes = 14, kUnevenTokens = 1000;

// Sentences as the model reads them, one behind the other.
struct TranslateBatch {
  models::Sequences source, target;
  Tensor label;
  std::vector<int64_t> lengths;
};

TranslateBatch some_sentences(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int64_t>> sources, targets, labels;
  for (const int64_t n : lengths) {
    sources.push_back(some_tokens(n));
    labels.push_back(some_tokens(n));
    labels.back().back() = kEos;
    targets.emplace_back(1, kBos);
    targets.back().insert(targets.back().end(), labels.back().begin(), labels.back().end() - 1);
  }
  return {models::sequences_of(sources), models::sequences_of(targets), models::sequences_of(labels).tokens, lengths};
}

// A model with its optimiser and the batches of a case.
struct TranslateSubject {
  std::string name;
  std::unique_ptr<models::Seq2Seq> model;
  std::unique_ptr<TrainingStep> step;
  std::unique_ptr<PackedWeights> packed = std::make_unique<PackedWeights>();  // of decoding
  std::vector<std::vector<TranslateBatch>> batches;                           // each in the parts that workers share

  TranslateSubject(const std::string& name_of_case, const std::string& attention, const std::string& ffn, int64_t ffn_width, int threads)
      : name(name_of_case) {
    at::manual_seed(1);
    models::Seq2SeqConfig config;
    config.size = "iwslt";
    config.vocabulary = kVocabulary;
    config.dropout = config.ffn.dropout = 0.1;
    config.attention.preset = attention, config.attention.dropout = 0.1;
    config.ffn.activation = ffn, config.ffn.width = ffn_width;
    model = std::make_unique<models::Seq2Seq>(config, 1);
    const std::vector<std::vector<int64_t>> lengths = translate_batches(name);
    std::vector<std::vector<int64_t>> both = lengths;  // source and target are equally long
    for (std::vector<int64_t>& batch : both)
      for (int64_t& length : batch) length *= 2;
    const int64_t even = text::even_parts(both, train::tolerated_unevenness(model->parameters().count()));
    step = std::make_unique<TrainingStep>(model->parameters(), train::AdamOptions{0.9, 0.98, 1e-9}, even, threads);
    const size_t parts = training() ? static_cast<size_t>(step->workers().count()) : 1;
    for (const std::vector<int64_t>& all : lengths) {
      batches.emplace_back();
      const auto at = [&](size_t part) { return all.begin() + static_cast<std::ptrdiff_t>(part * all.size() / parts); };
      for (size_t part = 0; part < parts; ++part) batches.back().push_back(some_sentences({at(part), at(part + 1)}));
    }
  }

  bool training() const { return name != "decode"; }

  double flops() const {
    double sum = 0;
    for (const auto& parts : batches)
      for (const TranslateBatch& part : parts) sum += model->flops(part.lengths, part.lengths);
    return sum;
  }

  // The negative log-likelihood of a few sequences together against that of each alone, from its logits in float64.
  double error() const {
    const at::NoGradGuard guard;
    const std::vector<int64_t>&first = batches.front().front().lengths, &last = batches.back().back().lengths;
    const TranslateBatch few = some_sentences(first.size() > 1 ? std::vector<int64_t>{first[0], last[0], first[1]} : first);
    double alone = 0;
    int64_t begin = 0;
    for (const int64_t n : few.lengths) {
      const auto one = [&](const models::Sequences& all) {
        return models::Sequences{all.tokens.narrow(0, begin, n), at::tensor({int64_t{0}, n}, at::kLong)};
      };
      const Tensor logits = model->forward(one(few.source), one(few.target)).logits.to(at::kDouble);
      alone -= at::log_softmax(logits, 1).gather(1, few.label.narrow(0, begin, n).unsqueeze(1)).sum().item<double>();
      begin += n;
    }
    return std::abs(model->loss(few.source, few.target, few.label).nll - alone) / alone;
  }

  // A training step on each batch; its target tokens.
  int64_t train() const {
    int64_t tokens = 0;
    for (const std::vector<TranslateBatch>& parts : batches) {
      int64_t all = 0;
      for (const TranslateBatch& part : parts) all += part.label.size(0);
      tokens += all;
      step->step(1e-5, 0, [&](int64_t shard) {
        const TranslateBatch& part = parts[static_cast<size_t>(shard)];
        models::Seq2SeqOptions options;
        options.noise = static_cast<uint64_t>(shard);
        options.label_smoothing = kLabelSmoothing;
        options.regulariser = model->has_regulariser();
        const models::Seq2SeqLoss result = model->loss(part.source, part.target, part.label, options);
        const double share = static_cast<double>(result.tokens) / static_cast<double>(all);
        if (!options.regulariser) return train::gradients_of(model->parameters(), {result.loss}, {share});
        return train::gradients_of(model->parameters(), {result.loss, result.regulariser}, {share, kRegulariserWeight * share});
      });
    }
    return tokens;
  }

  // Tokens written, their end tokens among them.
  int64_t search() const {
    const at::NoGradGuard guard;
    const PackedWeights::Use use(*packed);
    const TranslateBatch& batch = batches.front().front();
    const decode::SearchProblem problem{kVocabulary, kBos, kEos, {}, batch.lengths};
    decode::SearchOptions options;
    options.beam = kBeam;
    std::vector<decode::Source> rows;
    const int64_t* tokens = batch.source.tokens.data_ptr<int64_t>();
    for (const int64_t n : batch.lengths) rows.emplace_back(tokens, tokens + n), tokens += n;
    int64_t written = 0;
    for (const auto& best : decode::decode_batch(*model, rows, problem, options))
      written += static_cast<int64_t>(best[0].tokens.size()) + 1;
    return written;
  }
};

TranslateRow row_of(const TranslateSubject& subject, int64_t tokens, const Timing& timing) {
  TranslateRow row;
  const models::Seq2SeqConfig& config = subject.model->config();
  row.name = subject.name, row.attention = config.attention.preset, row.ffn = config.ffn.activation, row.ffn_width = *config.ffn.width;
  row.tokens = tokens;
  for (const auto& parts : subject.batches) {
    row.batches.emplace_back();
    for (const TranslateBatch& part : parts) row.batches.back().insert(row.batches.back().end(), part.lengths.begin(), part.lengths.end());
  }
  row.timing = timing;
  row.tokens_per_second = timing.per_second(static_cast<double>(tokens));
  if (subject.training()) row.gflops = timing.gflops(train::training_flops(subject.flops()));
  return row;
}

// The models of a case, checked. The largest error is kept in the report.
std::vector<TranslateSubject> checked_subjects(const TranslatePlan& plan, const std::string& name, const ShowProgress& progress,
                                               TranslateReport& report) {
  std::vector<TranslateSubject> subjects;
  for (const std::string& attention : plan.attentions)
    for (const std::string& ffn : plan.ffns) {
      const std::string what = fmt::format("{}, attention {}, ffn {}", name, attention, ffn);
      progress("checking " + what);
      subjects.emplace_back(name, attention, ffn, plan.ffn_width, plan.threads);
      // Rounding grows with the number of layers; a wrong formula is off by far more.
      const double error = subjects.back().error();
      if (!(error < 1e-4)) throw std::runtime_error(fmt::format("{}: the loss is off by {:.2g}; nothing was measured", what, error));
      report.largest_error = std::max(report.largest_error, error);
    }
  return subjects;
}

}  // namespace

std::vector<std::string> translate_case_names() { return {"25", "256", "2048", "uneven", "decode"}; }

std::vector<std::string> translate_attention_names() { return nn::attention_presets(); }

std::vector<std::string> translate_ffn_names() { return nn::feed_forward_activations(); }

std::vector<std::vector<int64_t>> translate_batches(const std::string& name) {
  if (name == "decode") return {std::vector<int64_t>(kSentences, kSentenceTokens)};
  if (name != "uneven") {
    const int64_t n = std::stoll(name);
    return {std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(1, kBatchTokens / n)), n)};
  }
  // Sorted by length and cut where padding to the longest would pass the limit: as who pads would batch them.
  std::vector<std::vector<int64_t>> batches(1);
  for (const int64_t n : kQuantiles)
    for (int64_t i = 0; i < kUnevenTimes; ++i) {
      if ((static_cast<int64_t>(batches.back().size()) + 1) * n > kUnevenTokens) batches.emplace_back();
      batches.back().push_back(n);
    }
  return batches;
}

TranslateReport run(const TranslatePlan& plan, const ShowProgress& progress) {
  at::set_num_threads(plan.threads);
  Rounds rounds(plan.threads, progress);
  TranslateReport report;
  for (const std::string& name : plan.cases) {
    const std::vector<TranslateSubject> subjects = checked_subjects(plan, name, progress, report);
    drop_kept_tensor_memory();  // what the checks and other cases took is no part of this one's memory
    support::forget_largest_resident();
    std::vector<int64_t> tokens(subjects.size());
    const std::vector<Timing> timings = rounds.measure(name, subjects.size(), plan.warm_up, plan.rounds, [&](size_t i) {
      return seconds_per_call(1, [&] { tokens[i] = subjects[i].training() ? subjects[i].train() : subjects[i].search(); });
    });
    for (size_t i = 0; i < subjects.size(); ++i) {
      report.rows.push_back(row_of(subjects[i], tokens[i], timings[i]));
      report.rows.back().memory_bytes = support::largest_resident_bytes();
    }
  }
  report.yardsticks = rounds.yardsticks();
  for (TranslateRow& row : report.rows) row.percent_of_peak = report.yardsticks.percent_of_peak(row.gflops);
  return report;
}

nlohmann::ordered_json to_json(const TranslateReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const TranslateRow& row : report.rows) {
    nlohmann::ordered_json json = {{"case", row.name},           {"attention", row.attention}, {"ffn", row.ffn},
                                   {"ffn_width", row.ffn_width}, {"tokens", row.tokens},       {"threads", report.yardsticks.threads}};
    add_timing(json, row.timing);
    json["tokens_per_second"] = row.tokens_per_second;
    json["gflops"] = row.gflops;
    json["percent_of_peak"] = row.percent_of_peak;
    json["memory_bytes"] = row.memory_bytes;
    json["batches"] = row.batches;
    results.push_back(json);
  }
  return {{"machine", to_json(report.yardsticks)}, {"largest_error", report.largest_error}, {"results", results}};
}

std::string table(const TranslateReport& report) {
  std::string text = report.yardsticks.heading();
  text += fmt::format("Checked: the loss of a batch and of its sequences one by one differ by at most {:.1g}.\n\n", report.largest_error);
  text += fmt::format("  {:8}  {:10}  {:12}  {:>6}  {:>7}  {:>10}  {:>19}  {:>9}  {:>8}  {:>9}  {:>9}\n", "case", "attention", "ffn",
                      "hidden", "tokens", "median ms", "quartiles ms", "tokens/s", "GFLOP/s", "% of peak", "memory MB");
  for (const TranslateRow& row : report.rows) {
    const auto or_dash = [&](double value) { return row.gflops > 0 ? fmt::format("{:.1f}", value) : std::string("-"); };
    text += fmt::format("  {:8}  {:10}  {:12}  {:>6}  {:>7}  {:>10.1f}  {:>19}  {:>9.0f}  {:>8}  {:>9}  {:>9}\n", row.name, row.attention,
                        row.ffn, row.ffn_width, row.tokens, row.timing.median_ms, row.timing.quartiles(1), row.tokens_per_second,
                        or_dash(row.gflops), or_dash(row.percent_of_peak), row.memory_bytes >> 20);
  }
  return text;
}

}  // namespace hinge::bench
