#include "tasks/translation/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "support/config.h"
#include "support/hash.h"
#include "support/require.h"
#include "tasks/translation/evaluation.h"
#include "tasks/translation/run_text.h"
#include "tasks/translation/trained_model.h"
#include "text/batches.h"
#include "text/score.h"
#include "train/processes.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace hinge::translation {
namespace {

using support::require;

// ---- the text of a run

struct RunText {
  text::Vocabulary vocabulary;
  std::shared_ptr<const text::Corpus> train, valid;
  // Validation sentences to translate for BLEU: the tokens of the corpus, which are cut where it cuts.
  std::vector<std::vector<int32_t>> sources;
  std::vector<std::string> references;

  // For the comparison with that of other processes.
  std::string description() const {
    const auto describe = [](const text::Corpus& corpus) {
      uint64_t hash = 0;
      for (int64_t i = 0; i < corpus.size(); ++i)
        for (const std::span<const int32_t> ids : {corpus.source(i), corpus.target(i)})
          hash = hash * 31 + support::fnv1a({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
      return fmt::format("{} source and {} target tokens (hash {:016x})", corpus.source_tokens(), corpus.target_tokens(), hash);
    };
    return fmt::format("{} to train, {} to evaluate", describe(*train), describe(*valid));
  }
};

// `stored`: the vocabulary that the run has already. A new one is made by the first of the processes. Each of them reads and encodes a part
// of the text, and gets the ids of the rest from the others.
RunText read_run_text(const Config& config, const std::optional<text::Vocabulary>& stored, const support::ProgressOutput& output,
                      const train::Processes& processes) {
  const text::Readers readers = readers_of(processes);
  auto [train, valid, skipped] = text::read_training_text(config.data.source, readers);
  if (!readers.alone() && !train.partial)
    processes.require_same("", fmt::format("{} to train, {} to evaluate", described(train), described(valid)));
  if (!skipped.empty()) output.write(fmt::format("catalogues: left out: {}\n", text::describe(skipped)));
  const auto made = [&, &text = train] {
    const bool again = text.partial && config.data.vocabulary_file.empty();  // the first has only its part
    return make_vocabulary(config.data, again ? text::read_training_text(config.data.source).train : text, output).bytes();
  };
  const text::Vocabulary vocabulary =
      stored ? *stored : text::Vocabulary::from_bytes(processes.from_first(made), "the vocabulary of the run");
  RunText data{vocabulary, nullptr, nullptr, {}, {}};
  const auto encode = [&](const char* name, const text::ParallelText& text) {
    auto corpus = std::make_shared<const text::Corpus>(text, vocabulary, config.data.corpus, readers);
    output.write(fmt::format("{}: {} {}, {} source and {} target tokens", name, corpus->size(),
                             config.data.corpus.document_tokens > 0 ? "parts of documents" : "pairs", corpus->source_tokens(),
                             corpus->target_tokens()));
    text::Counts left_out = text.skipped;
    for (const auto& [reason, count] : corpus->skipped()) left_out[reason] += count;
    if (corpus->cut() > 0) output.write(fmt::format("; cut shorter: {}", corpus->cut()));
    output.write(left_out.empty() ? "\n" : fmt::format("; left out: {}\n", text::describe(left_out)));
    return corpus;
  };
  data.train = encode("training", train);
  data.valid = encode("validation", valid);
  // Evenly over the text: its beginning may be one document, or one program's messages.
  const int64_t size = data.valid->size(), count = std::min(config.train.bleu_sentences, size);
  std::vector<text::Corpus::Place> places;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t item = i * size / count;
    const std::span<const int32_t> source = data.valid->source(item);
    data.sources.emplace_back(source.begin(), source.end());
    places.push_back(data.valid->place(item));
  }
  if (valid.partial) text::fill_in_targets(valid, places, readers);
  for (const text::Corpus::Place& place : places) data.references.push_back(text::joined(valid, place).target);
  return data;
}

// ---- the config

// What can be checked before the text is read, which takes a while.
void check(const Config& config) {
  const OptimConfig& optim = config.optim;
  train::check(optim, config.train);
  require(optim.label_smoothing >= 0 && optim.label_smoothing < 1,
          fmt::format("optim.label_smoothing must be in [0, 1), got {}", optim.label_smoothing));
  require(optim.regulariser_weight >= 0 && std::isfinite(optim.regulariser_weight),
          fmt::format("optim.regulariser_weight must not be negative, got {}", optim.regulariser_weight));
  require(optim.regulariser_warmup_steps >= 0,
          fmt::format("optim.regulariser_warmup_steps cannot be negative, got {}", optim.regulariser_warmup_steps));
  if (optim.regulariser_margin)
    require(*optim.regulariser_margin >= 0 && std::isfinite(*optim.regulariser_margin),
            fmt::format("optim.regulariser_margin must not be negative, got {}; none leaves the entropy out", *optim.regulariser_margin));
  require(config.train.bleu_sentences >= 0, fmt::format("train.bleu_sentences cannot be negative, got {}", config.train.bleu_sentences));
  models::Seq2SeqConfig model = config.model;
  if (model.vocabulary == 0) model.vocabulary = 1;  // stands for the number that is not known yet
  models::require_splittable(models::resolved(model), config.train.sequence_parallel);
  check_lengths(config);
}

Config resolve(Config config, const RunText& data) {
  const int64_t size = data.vocabulary.size();
  require(config.model.vocabulary == 0 || config.model.vocabulary == size,
          fmt::format("model.vocabulary is {}, but the vocabulary has {} tokens (0 takes their number)", config.model.vocabulary, size));
  config.model.vocabulary = size;
  config.model = models::resolved(config.model);
  config.model.gradient_checkpointing = config.train.gradient_checkpointing;
  std::string& path = config.data.source.path;
  path = train::absolute_path(path.empty() && config.data.source.kind == text::SourceKind::files ? "." : path);
  config.data.vocabulary_file = train::absolute_path(config.data.vocabulary_file);
  text::Batches batches(data.train, batch_options(config, /*training=*/true));
  train::resolve_steps(config.optim, [&](double epochs, int64_t most) { return steps_of(batches, epochs, most); });
  return config;
}

// ---- the training

std::vector<int64_t> lengths_of(const models::Sequences& sequences) {
  const auto* offsets = sequences.offsets.data_ptr<int64_t>();
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < sequences.count(); ++i) lengths.push_back(offsets[i + 1] - offsets[i]);
  return lengths;
}

class TranslationTraining : public train::Trainable {
 public:
  TranslationTraining(Config config, RunText data, BleuFunction bleu, const train::Processes& processes)
      : config_(std::move(config)),
        data_(std::move(data)),
        bleu_(std::move(bleu)),
        processes_(processes),
        each_(processes.group()),
        model_(config_.model, train::stream_seed(seed(), train::Stream::weights)),
        batches_(data_.train, batch_options(config_, /*training=*/true)),
        valid_(data_.valid, batch_options(config_, /*training=*/false)) {
    if (!model_.has_regulariser()) config_.optim.regulariser_weight = 0;
    constexpr int64_t kSampledBatches = 256;
    const int64_t parameters = model_.parameters().count();
    const int64_t parts = text::even_parts(batches_.sample_lengths(kSampledBatches), train::tolerated_unevenness(parameters));
    plan_ = processes_.plan(config_.train, parts, parameters);
    config_.train.shards = train::shards_of(config_.train, plan_, processes_.teams());
    train::use_threads(plan_.workers * plan_.threads);
  }

  const Config& config() const { return config_; }
  const text::Vocabulary& vocabulary() const { return data_.vocabulary; }

  train::LoopSettings settings() {
    const auto steps = [this](double epochs, int64_t most) { return steps_of(batches_, epochs, most); };
    return train::loop_settings(config_.optim, config_.train, plan_, steps, processes_.teams());
  }

  const nn::Parameters& parameters() const override { return model_.parameters(); }
  std::string items() const override { return "tokens"; }
  std::string score_name() const override { return "validation loss"; }
  std::string score_text(double score) const override { return fmt::format("{:.4f}", -score); }

  void begin(int64_t, const train::ShardOwners& owners) override { owners_ = owners; }

  void begin_step(int64_t step) override {
    const double started = train::steady_seconds();
    shards_.clear();
    tokens_ = 0;
    for (const text::TextBatch& part : text::cut(batches_.at(step), config_.train.shards)) {
      const bool own = std::ssize(shards_) >= owners_.first && std::ssize(shards_) < owners_.first + owners_.count;
      shards_.emplace_back();
      if (own && !part.items.empty()) shards_.back().emplace(part);
      tokens_ += std::ssize(part.target_out);
    }
    waited_ += train::steady_seconds() - started;
    const OptimConfig& optim = config_.optim;
    regulariser_weight_ = optim.regulariser_weight;
    if (step < optim.regulariser_warmup_steps)
      regulariser_weight_ *= static_cast<double>(step) / static_cast<double>(optim.regulariser_warmup_steps);
  }

  train::ShardOutcome shard(int64_t shard, uint64_t seed) override {
    const std::optional<ModelBatch>& batch = shards_[static_cast<size_t>(shard)];
    if (!batch) return {};  // fewer sequences than shards
    const OptimConfig& optim = config_.optim;
    const models::Seq2SeqLoss result =
        model_.loss(batch->source, batch->target, batch->labels,
                    {.noise = seed,
                     .regulariser = optim.regulariser_weight > 0,
                     .regulariser_margin = optim.regulariser_margin.value_or(std::numeric_limits<double>::infinity()),
                     .label_smoothing = optim.label_smoothing,
                     .views = nullptr,
                     .ranks = processes_.sequence()});
    // The mean over the step's tokens: a shard counts by its tokens, so that a step does not depend on how it is cut. In a team, each
    // member has the loss of its own tokens, and a part of the regulariser.
    const auto all_tokens = static_cast<double>(tokens_), tokens = static_cast<double>(batch->labels.numel());
    const double own_share = static_cast<double>(result.tokens) / all_tokens, share = tokens / all_tokens;
    const bool regularised = result.regulariser.defined();
    const std::vector<double> sums =
        processes_.sums_of_team({own_share * result.loss.item<double>(), regularised ? share * result.regulariser.item<double>() : 0,
                                 result.nll, static_cast<double>(result.right)});
    const double loss = sums[0], regulariser = sums[1];
    if (!std::isfinite(loss) || !std::isfinite(regulariser)) return {.loss = std::isfinite(loss) ? regulariser : loss};
    train::ShardOutcome outcome{loss, sums[3], tokens};
    outcome.flops = model_.flops(lengths_of(batch->source), lengths_of(batch->target));
    outcome.sums = {{"loss", loss * all_tokens}, {"nll", sums[2]}, {"right", outcome.right}, {"tokens", tokens}};
    if (optim.regulariser_weight > 0) outcome.sums["regulariser"] = regulariser;
    outcome.gradients = regulariser_weight_ > 0 ? train::gradients_of(model_.parameters(), {result.loss, result.regulariser},
                                                                      {own_share, regulariser_weight_ * share})
                                                : train::gradients_of(model_.parameters(), {result.loss}, {own_share});
    return outcome;
  }

  std::string first_not_finite(int64_t shard, uint64_t seed) override {
    const auto finite = [](const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); };
    const ModelBatch& batch = shards_[static_cast<size_t>(shard)].value();
    models::Seq2SeqViews views;
    const models::Seq2SeqOutput output = model_.forward(batch.source, batch.target, {.noise = seed, .views = &views});
    for (const nn::LayerView& layer : views.layers)
      if (!finite(layer.output)) return layer.name;
    if (!finite(views.encoder)) return "what leaves the encoder";
    if (!finite(views.decoder)) return "what leaves the decoder";
    if (!finite(output.logits)) return "the output projection";
    return config_.optim.regulariser_weight > 0 ? "the loss or the regulariser" : "the loss";
  }

  train::Values metrics(const train::Sums& sums, int64_t steps) const override {
    const double tokens = sums.at("tokens"), n = static_cast<double>(steps);
    train::Values values = {{"loss", sums.at("loss") / tokens},
                            {"nll", sums.at("nll") / tokens},
                            {"accuracy", sums.at("right") / tokens},
                            {"tokens", tokens / n}};
    if (sums.contains("regulariser")) values.emplace_back("regulariser", sums.at("regulariser") / n);
    return values;
  }

  std::optional<train::EvaluationOutcome> evaluate(const std::atomic<bool>& stop, const train::EvaluationProgress& progress) override {
    if (stop && processes_.count() == 1) return {};
    const auto goes_on = [&](int64_t done, int64_t all) {
      progress("evaluating", done, all);
      return !stop;
    };
    const std::optional<Evaluation> result = translation::evaluate(model_, valid_, goes_on, processes_);
    if (!result) return {};
    const double loss = result->loss(), perplexity = result->perplexity();
    train::EvaluationOutcome outcome{-loss, {{"loss", loss}, {"perplexity", perplexity}, {"token_accuracy", result->accuracy()}}, {}};
    outcome.text = fmt::format("loss {:.4f}, perplexity {:.2f} on {} tokens", loss, perplexity, result->tokens);
    if (!data_.sources.empty()) {
      const std::optional<double> score = bleu(stop, progress);
      if (!score) return {};
      outcome.metrics.emplace_back("bleu", *score);
      outcome.text += fmt::format(", BLEU {:.2f} on {} sentences", *score, data_.sources.size());
    }
    return outcome;
  }

  nlohmann::json checkpoint_state() const override {
    nlohmann::json state = translation::checkpoint_state(config_, data_.vocabulary);
    state["text"] = text_size();
    if (text_has_changed_) state["text_has_changed"] = true;
    return state;
  }
  // The run has begun with another text than that which it goes on with.
  void note_changed_text() { text_has_changed_ = true; }
  double waited_seconds() const override { return waited_; }

  // How much there is to train on: tells whether a resumed run finds the same text.
  nlohmann::json text_size() const { return {data_.train->size(), data_.train->source_tokens(), data_.train->target_tokens()}; }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(config_.train.seed); }

  // Nothing: stopped before its end.
  std::optional<double> bleu(const std::atomic<bool>& stop, const train::EvaluationProgress& progress) const {
    const auto goes_on = [&](int64_t done, int64_t all) {
      progress("translating", done, all);
      return !stop;
    };
    if (each_.count() > 1) return shared_bleu(goes_on);
    if (stop) return {};
    return bleu_(model_, data_.vocabulary, data_.sources, data_.references, goes_on);
  }

  // Each process translates its part.
  std::optional<double> shared_bleu(const BleuProgress& progress) const {
    const auto [first, last] = each_.own_part(std::ssize(data_.sources));
    const std::optional<std::vector<std::string>> own =
        decode::greedy_translations(model_, data_.vocabulary, {data_.sources.begin() + first, data_.sources.begin() + last}, progress);
    std::string bytes;
    if (own) nlohmann::json::to_msgpack(*own, bytes);
    std::vector<std::string> all;
    bool whole = true;
    for (const std::string& text : each_.gather(bytes)) {
      whole = whole && !text.empty();
      if (!text.empty())
        for (const nlohmann::json& translation : nlohmann::json::from_msgpack(text)) all.push_back(translation.get<std::string>());
    }
    if (!whole) return {};
    return text::bleu({all.begin(), all.end()}, {data_.references.begin(), data_.references.end()}).score;
  }

  Config config_;
  const RunText data_;
  const BleuFunction bleu_;
  const train::Processes processes_;
  const train::Processes each_;  // without teams: every process translates whole sentences of its own
  models::Seq2Seq model_;
  text::Batches batches_, valid_;
  train::WorkersPlan plan_;
  train::ShardOwners owners_;
  // The present step.
  std::vector<std::optional<ModelBatch>> shards_;  // of other processes: none
  int64_t tokens_ = 0;                             // of the target
  double regulariser_weight_ = 0;
  double waited_ = 0;
  bool text_has_changed_ = false;
};

}  // namespace

train::TrainResult train(const Config& given, const std::string& folder, const std::atomic<bool>& stop, support::ProgressOutput output,
                         BleuFunction bleu, distributed::ProcessGroup* group) {
  train::Processes processes(group);
  check(given);
  processes.require_same(support::write_config(given), "");  // before they read together
  processes.form_teams(given.train.sequence_parallel);
  RunText data = read_run_text(given, std::nullopt, output, processes);
  const Config config = resolve(given, data);
  processes.require_same(support::write_config(config), data.description());
  TranslationTraining training(config, std::move(data), std::move(bleu), processes);
  std::optional<train::RunFolder> run;
  if (processes.first())
    run.emplace(
        train::RunFolder::create(folder, support::write_config(training.config()), {{kVocabularyFile, training.vocabulary().bytes()}}));
  return train::run_loop(training, training.settings(), std::move(run), std::nullopt, stop, std::move(output), group);
}

train::TrainResult resume(const std::string& folder, const std::vector<std::string>& changes, const std::atomic<bool>& stop,
                          support::ProgressOutput output, BleuFunction bleu, distributed::ProcessGroup* group) {
  train::Processes processes(group);
  Config config = train::config_to_resume<Config>(folder, changes, processes);
  check(config);
  processes.form_teams(config.train.sequence_parallel);
  auto [run, from] = train::open_to_resume(folder, processes, output);
  const auto stored = [&] { return train::read_run_file(folder, kVocabularyFile); };
  const text::Vocabulary vocabulary = text::Vocabulary::from_bytes(processes.from_first(stored), folder + "/" + kVocabularyFile);
  if (from) require_vocabulary(vocabulary, *from, folder);
  RunText data = read_run_text(config, vocabulary, output, processes);
  config = resolve(config, data);
  processes.require_same(support::write_config(config), data.description());
  if (from) require_length_rules(config.model, *from, folder);
  TranslationTraining training(config, std::move(data), std::move(bleu), processes);
  if (from && from->state.contains("text") && from->state["text"] != training.text_size()) {
    output.write("the training text has changed since this run began; the run continues with the present text\n");
    training.note_changed_text();
  }
  if (from && from->state.contains("text_has_changed")) training.note_changed_text();
  train::require_steps(training.settings(), from);
  if (run && !changes.empty()) run->write_config(support::write_config(training.config()));
  return train::run_loop(training, training.settings(), std::move(run), from, stop, std::move(output), group);
}

}  // namespace hinge::translation
