#include "bench/translate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "bench/gemm.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "decode/translator.h"
#include "hinge/kernels/cpu.h"
#include "hinge/openmp_parallel.h"
#include "models/seq2seq.h"
#include "support/process_memory.h"
#include "train/adam.h"

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

// A model with its optimiser and one batch.
struct TranslateSubject {
  std::string name;
  std::vector<int64_t> lengths;
  std::unique_ptr<models::Seq2Seq> model;
  std::unique_ptr<train::Adam> adam;
  std::vector<std::vector<int64_t>> sources, targets, labels;
  models::Sequences source, target;
  Tensor label;

  TranslateSubject(const std::string& name_of_case, const std::string& attention) : name(name_of_case), lengths(translate_lengths(name_of_case)) {
    at::manual_seed(1);
    models::Seq2SeqConfig config;
    config.size = "iwslt";
    config.vocabulary = kVocabulary;
    config.dropout = config.ffn_dropout = 0.1;
    config.attention_dropout = 0.1;
    config.attention = attention;
    model = std::make_unique<models::Seq2Seq>(config, 1);
    adam = std::make_unique<train::Adam>(model->parameters(), train::AdamOptions{0.9, 0.98, 1e-9});
    std::vector<int64_t> all_labels;
    for (const int64_t n : lengths) {
      sources.push_back(some_tokens(n));
      labels.push_back(some_tokens(n));
      labels.back().back() = kEos;
      targets.emplace_back(1, kBos);
      targets.back().insert(targets.back().end(), labels.back().begin(), labels.back().end() - 1);
      all_labels.insert(all_labels.end(), labels.back().begin(), labels.back().end());
    }
    source = models::sequences_of(sources);
    target = models::sequences_of(targets);
    label = at::tensor(all_labels, at::kLong);
  }

  bool training() const { return name != "decode"; }
  int64_t target_tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

  // The negative log-likelihood of a few sequences together against that of each alone, from its logits in float64.
  double error() const {
    const at::NoGradGuard guard;
    const auto few = static_cast<std::ptrdiff_t>(std::min<size_t>(lengths.size(), 3));
    const auto first = [&](const auto& rows) { return models::sequences_of({rows.begin(), rows.begin() + few}); };
    double alone = 0;
    for (std::ptrdiff_t i = 0; i < few; ++i) {
      const auto row = static_cast<size_t>(i);
      const Tensor logits = model->forward(models::sequences_of({sources[row]}), models::sequences_of({targets[row]})).logits.to(at::kDouble);
      alone -= at::log_softmax(logits, 1).gather(1, at::tensor(labels[row], at::kLong).unsqueeze(1)).sum().item<double>();
    }
    const double together = model->loss(first(sources), first(targets), first(labels).tokens).nll;
    return std::abs(together - alone) / alone;
  }

  void step() const {
    model->parameters().clear_gradients();
    models::Seq2SeqOptions options;
    options.training = true;
    options.label_smoothing = kLabelSmoothing;
    options.regulariser = model->has_regulariser();
    const models::Seq2SeqLoss result = model->loss(source, target, label, options);
    torch::autograd::backward({options.regulariser ? result.loss + kRegulariserWeight * result.regulariser : result.loss});
    const double norm = adam->gradient_norm();
    adam->step(1e-5, 0, norm > 1 ? 1 / norm : 1);
  }

  // Tokens written, their end tokens among them.
  int64_t search() const {
    const at::NoGradGuard guard;
    decode::SearchProblem problem{kVocabulary, kBos, kEos, {}, std::vector<int64_t>(lengths.size(), kSentenceTokens)};
    decode::SearchOptions options;
    options.beam = kBeam;
    std::vector<decode::Source> rows;
    for (const std::vector<int64_t>& tokens : sources) rows.emplace_back(tokens.begin(), tokens.end());
    int64_t written = 0;
    for (const auto& best : decode::decode_batch(*model, rows, problem, options)) written += static_cast<int64_t>(best[0].tokens.size()) + 1;
    return written;
  }
};

TranslateRow measured(const TranslateSubject& subject, const std::string& attention, int64_t tokens, const std::vector<double>& seconds) {
  TranslateRow row;
  row.name = subject.name, row.attention = attention, row.tokens = tokens;
  row.median_ms = 1e3 * median(seconds), row.fastest_ms = 1e3 * quantile(seconds, 0);
  row.lower_quartile_ms = 1e3 * quantile(seconds, 0.25), row.upper_quartile_ms = 1e3 * quantile(seconds, 0.75);
  row.tokens_per_second = 1e3 * static_cast<double>(tokens) / row.median_ms;
  if (subject.training()) row.gflops = 3 * subject.model->flops(subject.lengths, subject.lengths) / row.median_ms * 1e-6;
  return row;
}

}  // namespace

std::vector<std::string> translate_case_names() { return {"25", "256", "2048", "uneven", "decode"}; }

std::vector<int64_t> translate_lengths(const std::string& name) {
  if (name == "decode") return std::vector<int64_t>(kSentences, kSentenceTokens);
  if (name != "uneven") {
    const int64_t n = std::stoll(name);
    return std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(1, kBatchTokens / n)), n);
  }
  // Sentences' lengths are about log-normal: median 20, most between 9 and 45. Quantiles of that, in a scattered order.
  std::vector<int64_t> lengths;
  for (int64_t i = 0, tokens = 0; tokens < kBatchTokens; ++i) {
    const double u = std::fmod(0.5 + 0.6180339887 * static_cast<double>(i), 1.0), logit = std::log(u / (1 - u));
    lengths.push_back(std::clamp<int64_t>(std::llround(20 * std::exp(0.5 * logit / 1.7)), 3, 100));
    tokens += lengths.back();
  }
  return lengths;
}

TranslateReport run(const TranslatePlan& plan, const std::function<void(const std::string&)>& progress) {
  at::set_num_threads(plan.threads);
  OpenMpParallel threads(plan.threads);
  OneDnnSgemm sgemm;
  TranslateReport report;
  report.threads = plan.threads;
  report.simd = kernels::simd_target();
  report.cpu = probe_cpu().model;
  std::vector<double> peaks, sgemms;
  for (const std::string& name : plan.cases) {
    std::vector<TranslateSubject> subjects;
    for (const std::string& attention : plan.attentions) {
      progress(fmt::format("checking {} {}", name, attention));
      subjects.emplace_back(name, attention);
      // Rounding grows with the number of layers; a wrong formula is off by far more.
      const double error = subjects.back().error();
      if (!(error < 1e-4))
        throw std::runtime_error(fmt::format("{} {}: the loss is off by {:.2g}; nothing is measured", name, attention, error));
      report.largest_error = std::max(report.largest_error, error);
    }
    std::vector<std::vector<double>> samples(subjects.size());
    std::vector<int64_t> tokens(subjects.size());
    for (int round = -1; round < plan.rounds; ++round) {
      progress(fmt::format("{}, round {} of {}", name, round + 1, plan.rounds));
      for (size_t i = 0; i < subjects.size(); ++i) {
        if (round >= 0) {
          peaks.push_back(kernels::measure_fma_peak(threads, 4));
          sgemms.push_back(sgemm.run());
        }
        tokens[i] = subjects[i].target_tokens();
        const double seconds = seconds_per_call(1, [&] {
          if (subjects[i].training()) subjects[i].step();
          else tokens[i] = subjects[i].search();
        });
        if (round >= 0) samples[i].push_back(seconds);
      }
    }
    for (size_t i = 0; i < subjects.size(); ++i) report.rows.push_back(measured(subjects[i], plan.attentions[i], tokens[i], samples[i]));
  }
  report.fma_peak_gflops = median(peaks);
  report.sgemm_gflops = median(sgemms);
  for (TranslateRow& row : report.rows) row.percent_of_peak = 100 * row.gflops / report.fma_peak_gflops;
  report.memory_bytes = support::largest_resident_bytes();
  return report;
}

nlohmann::ordered_json to_json(const TranslateReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const TranslateRow& row : report.rows)
    results.push_back({{"case", row.name}, {"attention", row.attention}, {"tokens", row.tokens}, {"threads", report.threads},
                       {"median_ms", row.median_ms}, {"lower_quartile_ms", row.lower_quartile_ms}, {"upper_quartile_ms", row.upper_quartile_ms},
                       {"fastest_ms", row.fastest_ms}, {"tokens_per_second", row.tokens_per_second}, {"gflops", row.gflops},
                       {"percent_of_peak", row.percent_of_peak}});
  return {{"machine",
           {{"fma_peak_gflops", report.fma_peak_gflops}, {"sgemm_gflops", report.sgemm_gflops}, {"threads", report.threads},
            {"simd", report.simd}, {"cpu", report.cpu}}},
          {"memory_bytes", report.memory_bytes},
          {"largest_error", report.largest_error},
          {"results", results}};
}

std::string table(const TranslateReport& report) {
  std::string text = fmt::format("{}, {}, {} thread{}, float32: FMA peak {:.0f} GFLOP/s, oneDNN sgemm {:.0f} ({:.0f}% of it)\n", report.cpu,
                                 report.simd, report.threads, report.threads == 1 ? "" : "s", report.fma_peak_gflops, report.sgemm_gflops,
                                 100 * report.sgemm_gflops / report.fma_peak_gflops);
  text += fmt::format("Checked: the loss of a batch and of its sequences one by one differ by {:.1g} at most. Largest memory of all: {} MB.\n\n",
                      report.largest_error, report.memory_bytes >> 20);
  text += fmt::format("  {:8}  {:10}  {:>7}  {:>10}  {:>19}  {:>9}  {:>8}  {:>9}\n", "case", "attention", "tokens", "median ms", "quartiles ms",
                      "tokens/s", "GFLOP/s", "% of peak");
  for (const TranslateRow& row : report.rows) {
    const auto or_dash = [&](double value) { return row.gflops > 0 ? fmt::format("{:.1f}", value) : std::string("-"); };
    text += fmt::format("  {:8}  {:10}  {:>7}  {:>10.1f}  {:>19}  {:>9.0f}  {:>8}  {:>9}\n", row.name, row.attention, row.tokens, row.median_ms,
                        fmt::format("{:.1f}-{:.1f}", row.lower_quartile_ms, row.upper_quartile_ms), row.tokens_per_second, or_dash(row.gflops),
                        or_dash(row.percent_of_peak));
  }
  return text;
}

}  // namespace hinge::bench
