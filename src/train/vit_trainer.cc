#include "train/vit_trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <omp.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "data/loader.h"
#include "support/config.h"
#include "support/jsonl.h"
#include "support/process_memory.h"
#include "support/tensorboard.h"
#include "train/adam.h"
#include "train/evaluate.h"
#include "train/run_folder.h"
#include "train/schedule.h"
#include "train/vit_run.h"

namespace hinge::train {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void use_threads(int64_t threads) { at::set_num_threads(static_cast<int>(threads > 0 ? threads : omp_get_num_procs())); }

// Seeds of the parts of a run must differ, and those of two steps, too.
uint64_t mixed(uint64_t seed, uint64_t stream) {
  uint64_t x = seed * 0x9E3779B97F4A7C15U + stream * 0xBF58476D1CE4E5B9U + 0x94D049BB133111EBU;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return (x ^ (x >> 31)) & 0x7FFFFFFFFFFFFFFFU;
}

// The images of a run; fills in what the config leaves to them.
struct RunData {
  std::shared_ptr<const data::ImageSet> train, eval;
  data::Pipeline train_pp, eval_pp;

  explicit RunData(const DataConfig& config)
      : train(data::open_images(source_of(config, config.train))), eval(data::open_images(source_of(config, config.eval))),
        train_pp(config.train_pp), eval_pp(config.eval_pp) {
    if (train->classes() != eval->classes())
      throw std::runtime_error(fmt::format("data: the splits '{}' and '{}' have different classes", config.train, config.eval));
  }
};

VitTrainConfig resolve(VitTrainConfig config, const RunData& data) {
  if (config.model.classes == 0) config.model.classes = static_cast<int64_t>(data.train->classes().size());
  config.model = models::resolved(config.model);
  const auto require = [](bool holds, const std::string& message) {
    if (!holds) throw std::runtime_error(message);
  };
  require(config.model.classes == static_cast<int64_t>(data.train->classes().size()),
          fmt::format("model.classes is {}, but the data have {} classes (0 takes their number)", config.model.classes, data.train->classes().size()));
  const OptimConfig& optim = config.optim;
  require(optim.batch >= 1 && optim.accumulate >= 1 && optim.batch % optim.accumulate == 0,
          fmt::format("optim.batch {} is not a multiple of optim.accumulate {}", optim.batch, optim.accumulate));
  require(optim.lr > 0 && std::isfinite(optim.lr), fmt::format("optim.lr must be positive, got {}", optim.lr));
  require(!optim.clip || *optim.clip > 0, "optim.clip must be positive, or none");
  require(config.train.eval_every > 0 && config.train.checkpoint_every > 0, "train.eval_every and train.checkpoint_every must be positive");
  require(config.train.keep >= 1 && config.train.log_steps >= 1, "train.keep and train.log_steps must be at least 1");
  if (!config.optim.steps)
    config.optim.steps = static_cast<int64_t>(std::llround(optim.epochs * static_cast<double>(data.train->size()) / static_cast<double>(optim.batch)));
  require(*config.optim.steps >= 1, "there is no step to train: optim.epochs and optim.batch give none");
  const models::VitConfig& model = config.model;
  for (const auto& [images, pp] : {std::pair(data.train, data.train_pp), std::pair(data.eval, data.eval_pp)}) {
    data::LoaderOptions one;
    one.on_error = data::parse_on_error(config.data.on_error);
    const data::Shape shape = data::Loader(images, pp, one).shape();
    require(shape.height == model.image_size && shape.width == model.image_size && shape.channels == model.channels,
            fmt::format("the model takes images of {0} x {0} pixels with {1} channels, but '{2}' gives {3} x {4} with {5}: change "
                        "model.image_size and model.channels or the preprocessing",
                        model.image_size, model.channels, pp.text(), shape.height, shape.width, shape.channels));
  }
  return config;
}

class Trainer {
 public:
  Trainer(VitTrainConfig config, RunData data, RunFolder folder, std::optional<Checkpoint> from, const std::atomic<bool>& stop,
          support::ProgressOutput output)
      : config_(std::move(config)), data_(std::move(data)), folder_(std::move(folder)), stop_(stop), output_(std::move(output)),
        model_(config_.model, mixed(static_cast<uint64_t>(config_.train.seed), 1)),
        adam_(model_.parameters(), {config_.optim.beta1, config_.optim.beta2, config_.optim.eps}) {
    if (!from) return;
    load_weights(from->file("weights.safetensors"), model_.parameters());
    adam_.load(from->file("state.safetensors"), from->step);
    step_ = from->step;
    if (from->state.contains("best")) best_ = from->state["best"].get<double>(), best_step_ = from->state["best_step"].get<int64_t>();
    if (from->state.contains("accuracy")) accuracy_ = from->state["accuracy"].get<double>();
    if (from->score) evaluated_at_ = step_;
    if (from->state.contains("log")) {
      const nlohmann::json& log = from->state["log"];
      log_ = {log.at("loss").get<double>(), log.at("norm").get<double>(), log.at("right").get<int64_t>(), log.at("images").get<int64_t>(),
              log.at("steps").get<int64_t>()};
    }
    seconds_before_ = from->state.value("train_seconds", 0.0);
  }

  TrainResult run() {
    try {
      return steps();
    } catch (const std::exception& error) {
      try {
        write_status("failed", error.what());
      } catch (const std::exception&) {
        // A full disk fails both; the first reason is the one to tell.
      }
      throw;
    }
  }

 private:
  int64_t steps_total() const { return *config_.optim.steps; }
  int64_t interval(double epochs) const {
    const double steps = epochs * static_cast<double>(data_.train->size()) / static_cast<double>(config_.optim.batch);
    return std::max<int64_t>(1, std::llround(steps));
  }

  TrainResult steps() {
    const OptimConfig& optim = config_.optim;
    data::LoaderOptions loading;
    loading.batch_size = optim.batch / optim.accumulate;
    loading.seed = mixed(static_cast<uint64_t>(config_.train.seed), 2);
    loading.threads = static_cast<int>(std::max<int64_t>(1, config_.data.threads));
    loading.mixup = config_.data.mixup;
    loading.on_error = data::parse_on_error(config_.data.on_error);
    loading.first_step = step_ * optim.accumulate;
    data::Loader loader(data_.train, data_.train_pp, loading);
    support::MetricsWriter metrics(metrics_path(folder_.folder()), step_);
    support::EventWriter events(folder_.folder(), step_ > 0 ? std::optional<int64_t>(step_) : std::nullopt);
    metrics_ = &metrics, events_ = &events;
    support::Progress progress("train", steps_total(), step_, output_);
    progress_ = &progress;
    write_status("running", "");

    const int64_t eval_steps = interval(config_.train.eval_every), checkpoint_steps = interval(config_.train.checkpoint_every);
    while (step_ < steps_total() && !stop_) {
      const double started = now();
      train_step(loader);
      train_seconds_ += now() - started;
      const bool last = step_ == steps_total();
      show(last);
      if (step_ % eval_steps == 0 || last) evaluate_now();
      if (step_ % checkpoint_steps == 0 || last) save();
    }
    waited_ = loader.waited_seconds();
    if (step_ < steps_total()) save();
    progress.finish();
    metrics.sync();
    write_status(step_ == steps_total() ? "done" : "stopped", "");

    TrainResult result;
    result.finished = step_ == steps_total();
    result.step = step_, result.steps = steps_total();
    result.accuracy = accuracy_.value_or(0), result.best = best_.value_or(0);
    result.images_per_second = images_per_second();
    result.waiting_share = train_seconds_ > 0 ? waited_ / train_seconds_ : 0;
    result.parameters = model_.parameters().count();
    result.memory_bytes = support::largest_resident_bytes();
    return result;
  }

  void train_step(data::Loader& loader) {
    const OptimConfig& optim = config_.optim;
    at::manual_seed(mixed(static_cast<uint64_t>(config_.train.seed), 3 + static_cast<uint64_t>(step_)));
    model_.parameters().clear_gradients();
    const kernels::CrossEntropy kind = loss_kind(optim);
    const auto parts = static_cast<double>(optim.accumulate);
    double loss_sum = 0;
    int64_t right = 0;
    for (int64_t part = 0; part < optim.accumulate; ++part) {
      loader.next(batch_);
      const at::Tensor images = pixels_of(batch_), labels = at::from_blob(batch_.labels.data(), {batch_.size}, at::kLong);
      const at::Tensor other =
          batch_.other_labels.empty() ? at::Tensor() : at::from_blob(batch_.other_labels.data(), {batch_.size}, at::kLong);
      const at::Tensor logits = model_.forward(images, /*training=*/true);
      const at::Tensor loss = hinge::cross_entropy(kind, logits, labels, other, static_cast<double>(batch_.lambda));
      const double value = loss.item<double>();
      if (!std::isfinite(value)) fail_non_finite(images, value);
      loss_sum += value / parts;
      right += (logits.argmax(1) == labels).sum().item<int64_t>();
      torch::autograd::backward({loss}, {at::scalar_tensor(1 / parts, at::kFloat)});
    }
    const double norm = adam_.gradient_norm();
    if (!std::isfinite(norm)) fail_non_finite_gradient(norm);
    const double factor = schedule_factor(optim.schedule, step_, steps_total(), optim.warmup_steps);
    const double scale = optim.clip && norm > *optim.clip ? *optim.clip / norm : 1;
    adam_.step(factor * optim.lr, factor * optim.weight_decay, scale);
    ++step_;
    log_.loss += loss_sum, log_.right += right, log_.images += optim.batch, log_.norm += norm, ++log_.steps;
    lr_ = factor * optim.lr;
    last_loss_ = loss_sum;
  }

  // A run must not go on from here: says which layer was the first to leave the numbers, and where to go back to.
  [[noreturn]] void fail_non_finite(const at::Tensor& images, double loss) {
    const at::NoGradGuard guard;
    std::string where = "the loss";
    const auto finite = [](const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); };
    if (!finite(images)) {
      where = "the images";
    } else if (const std::string parameter = parameter_beyond_numbers(); !parameter.empty()) {
      where = "the parameter " + parameter;
    } else {
      models::VitViews views;
      const at::Tensor logits = model_.forward(images, /*training=*/true, &views);
      where = finite(logits) ? "the loss" : finite(views.pre_logits) ? "the head" : "the pooling after the last block";
      for (size_t i = views.blocks.size(); i-- > 0;)
        if (!finite(views.blocks[i])) where = "block " + std::to_string(i);
    }
    throw TrainError(fmt::format("the loss became {} in step {}: the first that is not finite is {}. {}", loss, step_ + 1, where, way_back()));
  }

  [[noreturn]] void fail_non_finite_gradient(double norm) {
    // Backward goes from the last parameter to the first; gradients whose squares are beyond float32 are no use to Adam either.
    std::string where = "all parameters together";
    for (const nn::Parameter& parameter : model_.parameters().all())
      if (const at::Tensor& grad = parameter.value.grad(); grad.defined() && !at::isfinite(grad.square().sum()).item<bool>())
        where = parameter.name;
    throw TrainError(fmt::format("the gradient's norm became {} in step {}: the first that is too large or not finite is that of {}. {}", norm,
                                 step_ + 1, where, way_back()));
  }

  // The first parameter that is not finite; "" if all are.
  std::string parameter_beyond_numbers() const {
    for (const nn::Parameter& parameter : model_.parameters().all())
      if (!at::isfinite(parameter.value).all().item<bool>()) return parameter.name;
    return "";
  }

  std::string way_back() const {
    const CheckpointSearch last = latest_checkpoint(folder_.folder());
    return last.found ? fmt::format("The last good checkpoint is {}; a smaller optim.lr or a longer optim.warmup_steps may help",
                                    last.found->folder)
                      : "There is no checkpoint before it; a smaller optim.lr or a longer optim.warmup_steps may help";
  }

  double images_per_second() const {
    const double seconds = seconds_before_ + train_seconds_;
    return seconds > 0 ? static_cast<double>(step_ * config_.optim.batch) / seconds : 0;
  }

  void show(bool last) {
    const auto n = static_cast<double>(std::max<int64_t>(log_.steps, 1));
    if (progress_->due() || last) {
      support::Progress::Values values = {{"loss", fmt::format("{:.4f}", last_loss_)}};
      if (accuracy_) values.push_back({"accuracy", fmt::format("{:.2f}%", 100 * *accuracy_)});
      values.push_back({"images/s", fmt::format("{:.0f}", images_per_second())});
      progress_->update(step_, values);
    }
    if (log_.steps == 0 || (step_ % config_.train.log_steps != 0 && !last)) return;
    const double accuracy = static_cast<double>(log_.right) / static_cast<double>(log_.images);
    record({{"train/loss", log_.loss / n}, {"train/accuracy", accuracy}, {"train/gradient_norm", log_.norm / n}, {"train/lr", lr_},
            {"train/images_per_second", images_per_second()}});
    log_ = {};
  }

  void record(const std::vector<std::pair<std::string, double>>& values) {
    support::MetricRecord entry{step_, {}};
    for (const auto& [name, value] : values) entry.values.emplace_back(name, value);
    metrics_->append(entry);
    events_->scalars(step_, values);
  }

  void evaluate_now() {
    EvaluationOptions options;
    options.batch = std::min<int64_t>(256, std::max<int64_t>(1, config_.optim.batch / config_.optim.accumulate));
    options.threads = static_cast<int>(std::max<int64_t>(1, config_.data.threads));
    options.on_error = data::parse_on_error(config_.data.on_error);
    options.loss = loss_kind(config_.optim);
    const Evaluation result = evaluate(model_, data_.eval, data_.eval_pp, options);
    accuracy_ = result.accuracy();
    if (!best_ || *accuracy_ > *best_) best_ = accuracy_, best_step_ = step_;
    record({{"eval/accuracy", result.accuracy()}, {"eval/top5", result.top5_accuracy()}, {"eval/loss", result.loss}});
    progress_->note(fmt::format("step {}: accuracy {:.2f}%, loss {:.4f} on {} images", step_, 100 * result.accuracy(), result.loss, result.images));
    evaluated_at_ = step_;
  }

  void save() {
    if (const std::string parameter = parameter_beyond_numbers(); !parameter.empty())
      throw TrainError(fmt::format("the parameter {} is not finite after step {}. {}", parameter, step_, way_back()));
    CheckpointContent content;
    content.step = step_;
    if (evaluated_at_ == step_) content.score = accuracy_;
    content.files = {{"weights.safetensors", [&](const std::string& path) { save_weights(path, model_.parameters()); }},
                     {"state.safetensors", [&](const std::string& path) { adam_.save(path); }}};
    content.state = checkpoint_state(config_, data_.train->classes());
    if (best_) content.state["best"] = *best_, content.state["best_step"] = *best_step_;
    if (accuracy_) content.state["accuracy"] = *accuracy_;
    // The part of the next line of metrics that is there already, so that a resumed run writes the same line.
    content.state["log"] = {
        {"loss", log_.loss}, {"norm", log_.norm}, {"right", log_.right}, {"images", log_.images}, {"steps", log_.steps}};
    content.state["train_seconds"] = seconds_before_ + train_seconds_;
    metrics_->sync();
    folder_.save_checkpoint(content, config_.train.keep);
    write_status("running", "");
  }

  void write_status(const std::string& state, const std::string& message) {
    RunStatus status;
    status.state = state, status.message = message;
    status.step = step_, status.steps = steps_total();
    status.best = best_, status.best_step = best_step_;
    if (accuracy_) status.values["accuracy"] = *accuracy_;
    status.values["images_per_second"] = images_per_second();
    status.values["parameters"] = static_cast<double>(model_.parameters().count());
    status.values["train_seconds"] = seconds_before_ + train_seconds_;
    status.values["memory_bytes"] = static_cast<double>(support::largest_resident_bytes());
    folder_.write_status(status);
  }

  VitTrainConfig config_;
  RunData data_;
  RunFolder folder_;
  const std::atomic<bool>& stop_;
  support::ProgressOutput output_;
  models::Vit model_;
  Adam adam_;
  data::Batch batch_;

  int64_t step_ = 0;          // steps done
  double train_seconds_ = 0;   // of those by this process
  double seconds_before_ = 0;  // of those before it
  double waited_ = 0, lr_ = 0, last_loss_ = 0;
  std::optional<double> accuracy_, best_;
  std::optional<int64_t> best_step_, evaluated_at_;
  struct Log {
    double loss = 0, norm = 0;
    int64_t right = 0, images = 0, steps = 0;
  } log_;
  support::MetricsWriter* metrics_ = nullptr;
  support::EventWriter* events_ = nullptr;
  support::Progress* progress_ = nullptr;
};

}  // namespace

TrainResult train_vit(const VitTrainConfig& given, const std::string& folder, const std::atomic<bool>& stop, support::ProgressOutput output) {
  RunData data(given.data);
  const VitTrainConfig config = resolve(given, data);
  use_threads(config.train.threads);
  RunFolder run = RunFolder::create(folder, support::write_config(config));
  return Trainer(config, std::move(data), std::move(run), std::nullopt, stop, std::move(output)).run();
}

TrainResult resume_vit(const std::string& folder, const std::atomic<bool>& stop, support::ProgressOutput output) {
  if (!is_run(folder)) throw std::runtime_error(folder + " is not a run: it holds no config.toml");
  VitTrainConfig config;
  support::read_config(config, config_path(folder));
  RunData data(config.data);
  config = resolve(config, data);
  use_threads(config.train.threads);
  RunFolder run = RunFolder::open(folder);
  CheckpointSearch search = latest_checkpoint(folder);
  for (const std::string& skipped : search.skipped) output.write(fmt::format("passing over a checkpoint: {}\n", skipped));
  return Trainer(config, std::move(data), std::move(run), search.found, stop, std::move(output)).run();
}

}  // namespace hinge::train
