#include "tasks/vision/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "data/error.h"
#include "data/loader.h"
#include "eval/pixels.h"
#include "hinge/ops/dense.h"
#include "support/config.h"
#include "support/hash.h"
#include "support/require.h"
#include "tasks/vision/attention_numbers.h"
#include "tasks/vision/evaluation.h"
#include "tasks/vision/learned_attention.h"
#include "tasks/vision/trained_model.h"
#include "train/processes.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace hinge::vision {
namespace {

// The images of a run; fills in what the config leaves to them.
struct RunData {
  std::shared_ptr<const data::ImageSet> train, eval;
  data::Pipeline train_pp, eval_pp;

  explicit RunData(const DataConfig& config)
      : train(data::open_images(source_of(config, config.train))),
        eval(data::open_images(source_of(config, config.eval))),
        train_pp(config.train_pp),
        eval_pp(config.eval_pp) {
    if (train->classes() != eval->classes())
      throw std::runtime_error(fmt::format("data: the splits '{}' and '{}' have different classes", config.train, config.eval));
  }

  // For the comparison with those of other processes.
  std::string description() const {
    const auto describe = [](const data::ImageSet& set) {
      std::string labels;
      for (int64_t i = 0; i < set.size(); ++i) labels.append(std::to_string(set.label(i))).append(" ");
      for (const std::string& name : set.classes()) labels.append(name).append("\n");
      return fmt::format("{} images of {} classes (labels {:016x})", set.size(), set.classes().size(), support::fnv1a(labels));
    };
    return fmt::format("{} to train, {} to evaluate", describe(*train), describe(*eval));
  }
};

using support::require;

// What `action` gives. To an error in a file it adds what to do: how to find all such files, and `way`, how to do without them.
template <class Action> auto with_advice(const DataConfig& config, const std::string& way, const Action& action) {
  try {
    return action();
  } catch (const data::DataError& error) {
    const std::string path = config.path.empty() ? "" : " --path " + config.path;
    throw data::DataError(
        error.file, fmt::format("{}; hinge data check --format {}{} names all bad files, {}", error.problem, config.format, path, way));
  }
}

// How many steps epochs over the training images have.
train::StepsOf steps_in(const Config& config, const RunData& data) {
  return [optim = config.optim, images = data.train->size()](double epochs, int64_t most) { return steps_of(optim, images, epochs, most); };
}

Config resolve(Config config, const RunData& data) {
  if (config.model.classes == 0) config.model.classes = static_cast<int64_t>(data.train->classes().size());
  config.model = models::resolved(config.model);
  config.model.gradient_checkpointing = config.train.gradient_checkpointing;
  config.data.path = train::absolute_path(config.data.path), config.data.label_map = train::absolute_path(config.data.label_map);
  train::check(config.optim, config.train);
  models::require_splittable(config.model, config.train.sequence_parallel);
  require(config.model.classes == static_cast<int64_t>(data.train->classes().size()),
          fmt::format("model.classes is {}, but the data have {} classes (0 takes their number)", config.model.classes,
                      data.train->classes().size()));
  require(config.data.mixup >= 0 && config.data.mixup <= 1000,
          fmt::format("data.mixup must be 0 for none, or a number up to 1000, got {}", config.data.mixup));
  require(config.data.threads >= 1, fmt::format("data.threads must be at least 1, got {}", config.data.threads));
  train::resolve_steps(config.optim, steps_in(config, data));
  const models::VitConfig& model = config.model;
  for (const auto& [images, pp] : {std::pair(data.train, data.train_pp), std::pair(data.eval, data.eval_pp)}) {
    data::LoaderOptions one;
    one.on_error = config.data.on_error;
    const data::Shape shape = with_advice(config.data, "--set data.on_error=skip leaves them out",
                                          [&, set = images, steps = pp] { return data::Loader(set, steps, one).shape(); });
    require(shape.height == model.image_size && shape.width == model.image_size && shape.channels == model.channels,
            fmt::format("the model takes images of {0} x {0} pixels with {1} channels, but '{2}' gives {3} x {4} with {5}: change "
                        "model.image_size and model.channels or the preprocessing",
                        model.image_size, model.channels, pp.text(), shape.height, shape.width, shape.channels));
  }
  return config;
}

class VisionTraining : public train::Trainable {
 public:
  VisionTraining(const Config& config, RunData data, const std::vector<std::string>& classes, const std::string& run,
                 const train::Processes& processes)
      : config_(config),
        data_(std::move(data)),
        processes_(processes),
        without_bad_files_(fmt::format("hinge train --resume {} --set data.on_error=skip continues without them", run)),
        state_(vision::checkpoint_state(config_, classes)),
        model_(config_.model, train::stream_seed(seed(), train::Stream::weights)) {
    // With mixup an image needs another one in its shard.
    const int64_t least = config_.data.mixup > 0 ? 2 : 1;
    plan_ = processes_.plan(config_.train, config_.optim.batch / least, model_.parameters().count());
    config_.train.shards = train::shards_of(config_.train, plan_, processes_.teams());
    train::use_threads(plan_.workers * plan_.threads);
    require(config_.train.shards * least <= config_.optim.batch,
            fmt::format("optim.batch {} in {} shards leaves {} to a shard: take a larger batch or fewer {}", config_.optim.batch,
                        config_.train.shards, least > 1 ? "one image, which mixup would mix with itself," : "no image",
                        config.train.shards > 0 ? "train.shards" : "train.workers"));
  }

  const Config& config() const { return config_; }
  const nn::Parameters& parameters() const override { return model_.parameters(); }
  std::string items() const override { return "images"; }
  std::string score_name() const override { return "accuracy"; }
  std::string score_text(double score) const override { return fmt::format("{:.2f}%", 100 * score); }

  train::LoopSettings settings() const {
    return train::loop_settings(config_.optim, config_.train, plan_, steps_in(config_, data_), processes_.teams());
  }

  void begin(int64_t first_step, const train::ShardOwners& owners) override {
    owners_ = owners;
    data::LoaderOptions loading;
    loading.batch_size = config_.optim.batch;
    loading.seed = train::stream_seed(seed(), train::Stream::data);
    loading.threads = static_cast<int>(config_.data.threads);
    loading.mixup = config_.data.mixup;
    loading.parts = config_.train.shards;
    loading.first_part = owners.first, loading.own_parts = owners.count;
    loading.readers = owners.workers;
    loading.on_error = config_.data.on_error;
    loading.first_step = first_step;
    loader_ = std::make_unique<data::Loader>(data_.train, data_.train_pp, loading);
    batches_.resize(static_cast<size_t>(owners.workers));
  }

  void begin_step(int64_t) override {}

  train::ShardOutcome shard(int64_t shard, uint64_t seed) override {
    const OptimConfig& optim = config_.optim;
    data::Batch& batch = batch_of(shard);
    with_advice(config_.data, without_bad_files_, [&] { return loader_->next(batch, owners_.worker_of(shard)); });
    const at::Tensor images = eval::pixels_of(batch), labels = at::from_blob(batch.labels.data(), {batch.size}, at::kLong);
    const at::Tensor other = batch.other_labels.empty() ? at::Tensor() : at::from_blob(batch.other_labels.data(), {batch.size}, at::kLong);
    const at::Tensor logits = model_.forward(images, seed, nullptr, processes_.sequence());
    const at::Tensor mean = hinge::cross_entropy(optim.loss, logits, labels, other, static_cast<double>(batch.lambda));
    const auto count = static_cast<double>(batch.size);
    const double share = count / static_cast<double>(optim.batch), loss = mean.item<double>() * share;
    if (!std::isfinite(loss)) return {.loss = loss};
    const auto right = static_cast<double>((logits.argmax(1) == labels).sum().item<int64_t>());
    return {loss,
            right,
            count,
            {{"loss", loss}, {"right", right}, {"images", count}},
            // Every member of a team has the whole loss: each differentiates its part.
            train::gradients_of(model_.parameters(), {mean}, {share / static_cast<double>(config_.train.sequence_parallel)}),
            model_.flops() * count};
  }

  std::string first_not_finite(int64_t shard, uint64_t seed) override {
    const auto finite = [](const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); };
    const at::Tensor images = eval::pixels_of(batch_of(shard));
    if (!finite(images)) return "the images";
    models::VitViews views;
    const at::Tensor logits = model_.forward(images, seed, &views);
    if (!finite(views.embedding)) return "the patch embedding";
    for (size_t i = 0; i < views.blocks.size(); ++i)
      if (!finite(views.blocks[i])) return "block " + std::to_string(i);
    return finite(logits) ? "the loss" : finite(views.pre_logits) ? "the head" : "the pooling after the last block";
  }

  train::Values metrics(const train::Sums& sums, int64_t steps) const override {
    return {{"loss", sums.at("loss") / static_cast<double>(steps)}, {"accuracy", sums.at("right") / sums.at("images")}};
  }

  std::optional<train::EvaluationOutcome> evaluate(const std::atomic<bool>& stop, const train::EvaluationProgress& progress) override {
    EvaluationOptions options;
    options.progress = [&](int64_t done, int64_t total) { progress("evaluating", done, total); };
    options.batch = std::min<int64_t>(256, std::max<int64_t>(1, config_.optim.batch / config_.train.shards));
    options.threads = static_cast<int>(config_.data.threads);
    options.on_error = config_.data.on_error;
    options.loss = config_.optim.loss;
    options.stop = &stop;
    options.processes = processes_;
    const Evaluation result =
        with_advice(config_.data, without_bad_files_, [&] { return vision::evaluate(model_, data_.eval, data_.eval_pp, options); });
    skipped_in_eval_ = result.skipped;
    if (result.stopped) return {};
    train::Values details = learned_attention(model_);
    if (config_.train.statistics && processes_.first()) {  // for the metrics, which rank 0 writes
      const train::Values statistics = with_advice(config_.data, without_bad_files_, [&] { return statistics_of_attention(); });
      details.insert(details.end(), statistics.begin(), statistics.end());
    }
    return train::EvaluationOutcome{
        result.accuracy(),
        {{"accuracy", result.accuracy()}, {"top5", result.top5_accuracy()}, {"loss", result.loss}},
        fmt::format("accuracy {:.2f}%, loss {:.4f} on {} images", 100 * result.accuracy(), result.loss, result.images),
        details};
  }

  std::vector<std::string> skipped() const override {
    std::vector<std::string> files = loader_->skipped();
    files.insert(files.end(), skipped_in_eval_.begin(), skipped_in_eval_.end());
    return files;
  }
  nlohmann::json checkpoint_state() const override { return state_; }
  double waited_seconds() const override { return loader_ ? loader_->waited_seconds() : 0; }

 private:
  // On the first images of the evaluation.
  train::Values statistics_of_attention() const {
    data::LoaderOptions loading;
    loading.batch_size = std::min<int64_t>(64, data_.eval->size());
    loading.shuffle = loading.endless = false;
    loading.on_error = config_.data.on_error;
    data::Loader loader(data_.eval, data_.eval_pp, loading);
    data::Batch batch;
    return loader.next(batch) ? attention_statistics(model_, eval::pixels_of(batch)) : train::Values();
  }

  uint64_t seed() const { return static_cast<uint64_t>(config_.train.seed); }

  data::Batch& batch_of(int64_t shard) { return batches_[static_cast<size_t>(owners_.worker_of(shard))]; }

  Config config_;
  const RunData data_;
  const train::Processes processes_;
  const std::string without_bad_files_;
  const nlohmann::json state_;
  models::Vit model_;
  train::WorkersPlan plan_;
  train::ShardOwners owners_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<data::Batch> batches_;  // the last of each worker
  std::vector<std::string> skipped_in_eval_;
};

}  // namespace

train::TrainResult train(const Config& given, const std::string& folder, const std::atomic<bool>& stop, support::ProgressOutput output,
                         distributed::ProcessGroup* group) {
  train::Processes processes(group);
  RunData data(given.data);
  const Config config = resolve(given, data);
  processes.require_same(support::write_config(config), data.description());
  processes.form_teams(config.train.sequence_parallel);
  const std::vector<std::string> classes = data.train->classes();
  VisionTraining training(config, std::move(data), classes, folder, processes);
  std::optional<train::RunFolder> run;
  if (processes.first()) run.emplace(train::RunFolder::create(folder, support::write_config(training.config())));
  return train::run_loop(training, training.settings(), std::move(run), std::nullopt, stop, std::move(output), group);
}

train::TrainResult resume(const std::string& folder, const std::vector<std::string>& changes, const std::atomic<bool>& stop,
                          support::ProgressOutput output, distributed::ProcessGroup* group) {
  train::Processes processes(group);
  Config config = train::config_to_resume<Config>(folder, changes, processes);
  RunData data(config.data);
  config = resolve(config, data);
  processes.require_same(support::write_config(config), data.description());
  processes.form_teams(config.train.sequence_parallel);
  auto [run, from] = train::open_to_resume(folder, processes, output);
  std::vector<std::string> classes = data.train->classes();
  if (from) {
    classes = common_classes(class_names(*from), classes, folder);
    require_length_rule(config, *from, folder);
  }
  VisionTraining training(config, std::move(data), classes, folder, processes);
  train::require_steps(training.settings(), from);
  if (run && !changes.empty()) run->write_config(support::write_config(training.config()));
  return train::run_loop(training, training.settings(), std::move(run), from, stop, std::move(output), group);
}

}  // namespace hinge::vision
