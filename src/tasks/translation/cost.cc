#include "tasks/translation/cost.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "models/seq2seq.h"
#include "support/config.h"
#include "support/progress.h"
#include "tasks/sweep_costs.h"
#include "tasks/translation/config.h"
#include "tasks/translation/evaluation.h"
#include "tasks/translation/run_text.h"
#include "text/batches.h"
#include "train/flops.h"
#include "train/sharded_gradient.h"
#include "train/step_seconds.h"

namespace hinge::translation {
namespace {

// Lengths of sequences, source and target.
struct Lengths {
  std::vector<int64_t> sources, targets;

  void add(int64_t source, int64_t target) { sources.push_back(source), targets.push_back(target); }
  double flops(const models::Seq2Seq& model) const { return model.flops(sources, targets); }
};

// What the text comes to in training: that on this machine, or one that is assumed.
struct TextSize {
  int64_t vocabulary = 0, steps = 0;
  Lengths batch;  // an average one
};

// Several configs may train on one text.
class Texts {
 public:
  explicit Texts(const tasks::Assumptions& assumed) : assumed_(assumed) {}

  TextSize size(const Config& config) { return assumed_.contains("pairs") ? assumed_size(config) : size_here(config); }

 private:
  TextSize assumed_size(const Config& config) const {
    const auto number = [&](const char* name) {
      const auto found = assumed_.find(name);
      if (found == assumed_.end() || found->second < 1)
        throw support::ConfigError(fmt::format("[assume] has 'pairs', so it needs '{}', too: at least 1", name));
      return found->second;
    };
    const double pairs = number("pairs"), source = number("source_tokens"), target = number("target_tokens");
    TextSize size;
    size.vocabulary = config.data.vocabulary.size;
    const double pairs_per_step = std::max(1.0, std::floor(static_cast<double>(config.optim.batch) / std::max(source, target)));
    for (double i = 0; i < pairs_per_step; ++i) size.batch.add(std::llround(source), std::llround(target));
    train::OptimConfig optim = config.optim;
    train::resolve_steps(optim, [&](double epochs, int64_t) { return std::llround(epochs * pairs / pairs_per_step); });
    size.steps = *optim.steps;
    return size;
  }

  TextSize size_here(const Config& config) {
    const std::shared_ptr<const text::Corpus> corpus = corpus_of(config.data);
    TextSize size;
    size.vocabulary = vocabulary_sizes_.at(corpus);
    text::Batches batches(corpus, batch_options(config, /*training=*/true));
    train::OptimConfig optim = config.optim;
    train::resolve_steps(optim, [&](double epochs, int64_t most) { return steps_of(batches, epochs, most); });
    size.steps = *optim.steps;
    // As many items as a step has, evenly from all lengths.
    std::vector<std::pair<int64_t, int64_t>> lengths;
    for (int64_t i = 0; i < corpus->size(); ++i) lengths.emplace_back(corpus->source_length(i), corpus->target_length(i));
    std::sort(lengths.begin(), lengths.end());
    const int64_t count = std::max<int64_t>(1, corpus->size() / batches.steps(0));
    for (int64_t i = 0; i < count; ++i) {
      const auto& [source, target] = lengths[static_cast<size_t>((2 * i + 1) * corpus->size() / (2 * count))];
      size.batch.add(source, target);
    }
    return size;
  }

  std::shared_ptr<const text::Corpus> corpus_of(const DataConfig& config) {
    std::shared_ptr<const text::Corpus>& corpus = corpora_[support::write_config(config)];
    if (!corpus) {
      const text::ParallelText text = text::read_training_text(config.source).train;
      const text::Vocabulary vocabulary = make_vocabulary(config, text, support::ProgressOutput::standard_error());
      corpus = std::make_shared<const text::Corpus>(text, vocabulary, config.corpus);
      vocabulary_sizes_[corpus] = vocabulary.size();
    }
    return corpus;
  }

  const tasks::Assumptions& assumed_;
  std::map<std::string, std::shared_ptr<const text::Corpus>> corpora_;  // by their config
  std::map<std::shared_ptr<const text::Corpus>, int64_t> vocabulary_sizes_;
};

train::StepSeconds measure(const models::Seq2Seq& model, const Config& config, const Lengths& lengths) {
  const auto tokens = [&](const std::vector<int64_t>& wanted) {
    std::vector<std::vector<int64_t>> rows;
    for (const int64_t n : wanted) rows.emplace_back(static_cast<size_t>(n), 1);
    return models::sequences_of(rows);
  };
  const models::Sequences source = tokens(lengths.sources), target = tokens(lengths.targets);
  models::Seq2SeqOptions options;
  options.noise = 1;
  options.regulariser = config.optim.regulariser_weight > 0 && model.has_regulariser();
  options.label_smoothing = config.optim.label_smoothing;
  return train::step_seconds(model.parameters(), [&] {
    const models::Seq2SeqLoss loss = model.loss(source, target, target.tokens, options);
    return options.regulariser ? train::gradients_of(model.parameters(), {loss.loss, loss.regulariser}, {1, 1})
                               : train::gradients_of(model.parameters(), {loss.loss}, {1});
  });
}

}  // namespace

std::vector<tasks::TrainingCost> costs(const tasks::CostRequest& request) {
  std::vector<tasks::TrainingCost> costs;
  Texts texts(request.assumed);
  for (const tasks::ConfigSource& source : request.configs) {
    auto config = tasks::read_config<Config>(source);
    train::check(config.optim, config.train);
    const TextSize size = texts.size(config);
    if (config.model.vocabulary == 0) config.model.vocabulary = size.vocabulary;
    config.model = models::resolved(config.model);
    config.model.gradient_checkpointing = config.train.gradient_checkpointing;

    const models::Seq2Seq model(config.model, 0);
    const double step = train::training_flops(size.batch.flops(model)), steps = static_cast<double>(size.steps);
    tasks::TrainingCost cost;
    cost.parameters = model.parameters().count();
    cost.steps = size.steps;
    cost.flops = step * steps;
    cost.seconds = tasks::known_seconds(cost, costs);
    if (cost.seconds == 0) {
      // Every n-th pair of the batch, short ones and long ones.
      const auto every = static_cast<size_t>(std::max(1.0, std::ceil(step / train::kMeasuredFlops)));
      Lengths some;
      for (size_t i = std::min(every, size.batch.sources.size()) / 2; i < size.batch.sources.size(); i += every)
        some.add(size.batch.sources[i], size.batch.targets[i]);
      const train::StepSeconds seconds = measure(model, config, some);
      cost.seconds = steps * (seconds.gradient * step / train::training_flops(some.flops(model)) + seconds.adam);
    }
    costs.push_back(cost);
    request.progress(std::ssize(costs));
  }
  return costs;
}

}  // namespace hinge::translation
