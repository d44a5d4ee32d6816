#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <set>

#include "hinge/kernels/cpu.h"
#include "ops/error_text.h"
#include "support/file_error.h"
#include "support/json.h"
#include "support/jsonl.h"
#include "support/process_memory.h"
#include "support/require.h"
#include "support/tensorboard.h"
#include "support/threads.h"
#include "train/adam.h"
#include "train/flops.h"
#include "train/processes.h"
#include "train/weights.h"

namespace hinge::train {
namespace {

// JSON has no word for what is not finite, and stores it as null.
double number(const nlohmann::json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

std::map<std::string, double> numbers(const nlohmann::json& values) {
  std::map<std::string, double> all;
  for (const auto& [name, value] : values.items()) all[name] = number(value);
  return all;
}

// Puts the parameters' values back at its end, whichever way that comes.
class KeptWeights {
 public:
  explicit KeptWeights(const nn::Parameters& parameters) : parameters_(parameters) {
    for (const nn::Parameter& parameter : parameters.all()) values_.push_back(parameter.value.detach().clone());
  }
  ~KeptWeights() { put(values_); }
  KeptWeights(const KeptWeights&) = delete;
  KeptWeights& operator=(const KeptWeights&) = delete;

  const std::vector<at::Tensor>& values() const { return values_; }
  void put(const std::vector<at::Tensor>& values) const {
    const at::NoGradGuard guard;
    for (size_t i = 0; i < values.size(); ++i) at::Tensor(parameters_.all()[i].value).copy_(values[i]);
  }

 private:
  const nn::Parameters& parameters_;
  std::vector<at::Tensor> values_;
};

class Loop {
 public:
  Loop(Trainable& trainable, const LoopSettings& settings, std::optional<RunFolder> folder, const std::optional<Checkpoint>& from,
       const std::atomic<bool>& stop, support::ProgressOutput output, distributed::ProcessGroup* group)
      : trainable_(trainable),
        settings_(settings),
        folder_(std::move(folder)),
        stop_(stop),
        output_(std::move(output)),
        group_(group),
        adam_(trainable.parameters(), {settings.optim.beta1, settings.optim.beta2, settings.optim.eps}),
        workers_(static_cast<int>(settings.run.workers), static_cast<int>(settings.run.threads)),
        gradient_(trainable.parameters(), workers_, settings.run.shards, group, settings.run.sequence_parallel) {
    if (from && folder_) {
      load_weights(from->file(kWeights), trainable_.parameters());
      adam_.load(from->file(kState), from->step);
    }
    if (group_) {
      // New weights, too: their random numbers may differ in the last bits between machines.
      share_weights();
      adam_.share(*group_);
    }
    if (!from) return;
    step_ = first_step_ = from->step;
    saved_at_ = step_;
    from->read_state([&](const nlohmann::json& state) { take_up(state); });
    if (threads_before_ && *threads_before_ != workers_.threads())
      output_.write(
          fmt::format("each worker has {} threads now instead of {}: from here on, the weights differ in their last bits from those "
                      "of a run that was not interrupted; train.threads={} would keep them\n",
                      workers_.threads(), *threads_before_, *threads_before_));
  }

  TrainResult run() {
    try {
      return steps();
    } catch (const std::exception& error) {
      if (group_) group_->fail(error_text(error));  // before anything waits for the others
      // A full disk fails all of it; the first reason is the one to tell.
      const auto attempt = [](const auto& action) {
        try {
          action();
        } catch (const std::exception&) {
        }
      };
      const bool diverged = dynamic_cast<const DivergedError*>(&error) != nullptr;
      const bool good_weights = !diverged && !comparing_;
      if (good_weights && folder_ && step_is_whole_ && metrics_ && saved_at_.value_or(0) != step_) attempt([&] { save(); });
      attempt([&] { write_status(diverged ? "diverged" : "failed", error_text(error)); });
      log(error_text(error));
      throw;
    }
  }

 private:
  // What save() has written.
  void take_up(const nlohmann::json& state) {
    if (state.contains("best")) best_ = number(state.at("best")), best_step_ = support::whole_number(state.at("best_step"));
    if (state.contains("evaluated_at")) {
      score_ = number(state.at("score")), evaluated_ = numbers(state.at("evaluated"));
      evaluated_at_ = support::whole_number(state.at("evaluated_at"));
    }
    if (step_ == settings_.steps() && state.contains("averaged_score"))
      averaged_score_ = number(state.at("averaged_score")), averaged_values_ = numbers(state.at("averaged"));
    if (state.contains("log")) {
      sums_ = state.at("log").get<Sums>();
      log_steps_ = support::whole_number(state.at("log").at("steps")), norm_sum_ = sums_["norm"];
      sums_.erase("steps"), sums_.erase("norm");
    }
    if (state.contains("threads")) threads_before_ = support::whole_number<int>(state.at("threads"));
    items_ = state.value("items", 0.0);
    flops_ = state.value("flops", 0.0);
    seconds_before_ = state.value("train_seconds", 0.0);
    cpu_before_ = state.value("cpu_seconds", 0.0);
    waited_before_ = state.value("waited_seconds", 0.0);
  }

  TrainResult steps() {
    trainable_.begin(step_, {gradient_.first_shard(), gradient_.own_shards(), workers_.count()});
    if (folder_) {
      metrics_.emplace(metrics_path(folder_->folder()), step_);
      events_.emplace(folder_->folder(), step_);
    }
    progress_.emplace("train", settings_.steps(), step_, output_);
    WorkersParallel parallel(workers_);
    peak_flops_ = 1e9 * kernels::measure_fma_peak(parallel);
    if (group_) bytes_before_ = group_->traffic().bytes;
    write_status("running", "");
    log(fmt::format("training from step {} to {}, {} worker{} of {} thread{}", step_, settings_.steps(), workers_.count(),
                    workers_.count() == 1 ? "" : "s", workers_.threads(), workers_.threads() == 1 ? "" : "s"));

    if (evaluation_due() || average_due()) go_on_with_the_last_step();
    while (step_ < settings_.steps() && !stopping()) {
      const double started = steady_seconds(), cpu_started = process_cpu_seconds();
      const bool whole = train_step();
      train_seconds_ += steady_seconds() - started;
      cpu_seconds_ += process_cpu_seconds() - cpu_started;
      note_skipped();
      if (!whole) break;
      show(step_ == settings_.steps());
      step_is_whole_ = true;
      end_step();
    }
    const bool finished = step_ == settings_.steps() && !evaluation_due() && !average_due();
    if (!finished && saved_at_ != step_) save_together();
    progress_->finish();
    if (metrics_) metrics_->sync();
    write_status(finished ? "done" : "stopped", "");
    log(fmt::format("{} at step {}", finished ? "done" : "stopped", step_));

    TrainResult result;
    result.finished = finished;
    result.step = step_, result.steps = settings_.steps();
    result.score = score_.value_or(0), result.best = best_.value_or(0);
    if (score_ && best_)
      result.outcome =
          fmt::format("{} {} (best {})", trainable_.score_name(), trainable_.score_text(*score_), trainable_.score_text(*best_));
    result.items = trainable_.items(), result.items_per_second = items_per_second();
    result.waiting_share = waiting_share();
    result.parameters = trainable_.parameters().count();
    result.memory_bytes = support::largest_resident_bytes();
    result.skipped = std::ssize(skipped_);
    return result;
  }

  // With several processes, once all know that one was asked to stop.
  bool stopping() const { return group_ ? all_stop_ : stop_.load(); }

  // Gives rank 0's weights to all.
  void share_weights() {
    const at::NoGradGuard guard;
    for (const nn::Parameter& parameter : trainable_.parameters().all()) {
      at::Tensor value = parameter.value.detach();
      group_->broadcast(value, 0);
      parameter.value.unsafeGetTensorImpl()->bump_version();
    }
  }

  // The last step is always evaluated; one that is less than half an interval before it is left to it.
  bool evaluation_due() const {
    const int64_t left = settings_.steps() - step_, every = settings_.eval_steps;
    return step_ > 0 && (left == 0 || (step_ % every == 0 && 2 * left >= every)) && evaluated_at_ != step_;
  }
  bool average_due() const { return step_ == settings_.steps() && averaged_steps().size() > 1 && !averaged_score_; }

  // What follows a step. A stop may cut it off: the checkpoint is then saved without it, and the next process begins with it.
  void end_step() {
    if (evaluation_due() && !evaluate()) return;
    if (average_due() && !average()) return;
    if (step_ % settings_.checkpoint_steps == 0 || step_ == settings_.steps() || best_step_ == step_) save_together();
  }

  void go_on_with_the_last_step() {
    // A process that was killed at this very place may have written the lines already.
    if (folder_)
      for (const support::MetricRecord& line : support::read_metrics(metrics_path(folder_->folder())))
        if (line.step == step_)
          for (const auto& value : line.values) written_.insert(value.first);
    end_step();
    written_.clear();
  }

  // False: stopped before its end.
  bool train_step() {
    trainable_.begin_step(step_);
    outcomes_.assign(static_cast<size_t>(settings_.run.shards), {});
    std::atomic<bool> failed = false, stopped = false;
    const Gradients& gradients = gradient_.compute([&](int64_t shard) {
      if (stop_ && !in_team()) stopped = true;  // a team does not leave a step that others of it may have begun
      if (stopped || failed) return Gradients();
      ShardOutcome& outcome = outcomes_[static_cast<size_t>(shard)];
      outcome = trainable_.shard(shard, seed_of(shard));
      if (!std::isfinite(outcome.loss)) failed = true;
      return std::move(outcome.gradients);
    });
    if (group_) share_outcomes(failed, stopped);
    for (int64_t shard = 0; failed && shard < settings_.run.shards; ++shard)
      if (const double loss = outcomes_[static_cast<size_t>(shard)].loss; !std::isfinite(loss)) fail_non_finite(loss, shard);
    if (stopped) return false;
    ShardOutcome all;
    for (const ShardOutcome& outcome : outcomes_) {
      all.loss += outcome.loss, all.right += outcome.right, all.items += outcome.items, all.flops += outcome.flops;
      for (const auto& [name, value] : outcome.sums) all.sums[name] += value;
    }
    WorkersParallel parallel(workers_);
    const double norm = adam_.gradient_norm(gradients, parallel);
    if (!std::isfinite(norm)) fail_non_finite_gradient(norm, gradients);
    const double factor = schedule_factor(settings_.optim.schedule, step_, settings_.steps(), settings_.optim.warmup_steps);
    const double scale = settings_.optim.clip && norm > *settings_.optim.clip ? *settings_.optim.clip / norm : 1;
    step_is_whole_ = false;
    adam_.step(gradients, factor * settings_.optim.lr, factor * settings_.optim.weight_decay, scale, parallel);
    ++step_;
    for (const auto& [name, value] : all.sums) sums_[name] += value;
    norm_sum_ += norm, ++log_steps_;
    items_ += all.items;
    flops_ += training_flops(all.flops);
    lr_ = factor * settings_.optim.lr;
    last_loss_ = all.loss, last_accuracy_ = all.right / all.items;
    return true;
  }

  // All processes have the outcomes of all shards, and know of all whether a loss is not finite and whether one was asked to stop.
  void share_outcomes(std::atomic<bool>& failed, std::atomic<bool>& stopped) {
    nlohmann::json own = {
        {"failed", failed.load()}, {"stopped", stopped.load()}, {"asked", stop_.load()}, {"outcomes", nlohmann::json::array()}};
    for (int64_t i = 0; i < gradient_.own_shards(); ++i) {
      const ShardOutcome& outcome = outcomes_[static_cast<size_t>(gradient_.first_shard() + i)];
      own["outcomes"].push_back({outcome.loss, outcome.right, outcome.items, outcome.flops, outcome.sums});
    }
    for (const std::string& file : trainable_.skipped())
      if (!told_skipped_.contains(file)) own["skipped"].push_back(file), told_skipped_.insert(file);
    const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(own);
    const std::vector<std::string> all = group_->all_gather_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    size_t shard = 0;
    bool asked = false;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const nlohmann::json of_rank = nlohmann::json::from_msgpack(all[rank]);
      if (of_rank.at("failed").get<bool>()) failed = true;
      if (of_rank.at("stopped").get<bool>()) stopped = true;
      asked = asked || of_rank.at("asked").get<bool>();
      if (rank % static_cast<size_t>(settings_.run.sequence_parallel) > 0) continue;  // the others of its team have the same outcomes
      for (const nlohmann::json& stored : of_rank.at("outcomes")) {
        ShardOutcome& outcome = outcomes_[shard++];
        outcome.loss = stored.at(0), outcome.right = stored.at(1), outcome.items = stored.at(2), outcome.flops = stored.at(3);
        outcome.sums = stored.at(4).get<Sums>();
      }
      if (of_rank.contains("skipped"))
        for (const nlohmann::json& file : of_rank["skipped"]) skipped_elsewhere_.push_back(file.get<std::string>());
    }
    all_stop_ = asked;
  }

  bool in_team() const { return settings_.run.sequence_parallel > 1; }
  uint64_t seed_of(int64_t shard) const { return shard_seed(static_cast<uint64_t>(settings_.run.seed), step_, shard); }

  // A run must not go on from here: says which part was the first to leave the numbers, and where to go back to.
  [[noreturn]] void fail_non_finite(double loss, int64_t shard) {
    const at::NoGradGuard guard;
    const std::string parameter = parameter_beyond_numbers();
    const std::string where = parameter.empty() ? first_not_finite(shard) : "the parameter " + parameter;
    throw DivergedError(
        fmt::format("the loss became {} in step {}: the first that is not finite is {}. {}", loss, step_ + 1, where, way_back()));
  }

  // By the process that has the shard.
  std::string first_not_finite(int64_t shard) {
    const auto owner = static_cast<int>(shard / gradient_.own_shards() * settings_.run.sequence_parallel);
    if (!group_) return trainable_.first_not_finite(shard, seed_of(shard));
    return group_->broadcast_bytes(group_->rank() == owner ? trainable_.first_not_finite(shard, seed_of(shard)) : "", owner);
  }

  [[noreturn]] void fail_non_finite_gradient(double norm, const Gradients& gradients) {
    // Backward goes from the last parameter to the first; gradients whose squares are beyond float32 are no use to Adam either.
    std::string where = "all parameters together";
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined() && !at::isfinite(gradients[i].square().sum()).item<bool>()) where = trainable_.parameters().all()[i].name;
    throw DivergedError(fmt::format("the gradient's norm became {} in step {}: the first that is too large or not finite is that of {}. {}",
                                    norm, step_ + 1, where, way_back()));
  }

  // The first parameter that is not finite; "" if all are.
  std::string parameter_beyond_numbers() const {
    for (const nn::Parameter& parameter : trainable_.parameters().all())
      if (!at::isfinite(parameter.value).all().item<bool>()) return parameter.name;
    return "";
  }

  std::string way_back() const {
    if (!folder_) return "Rank 0 says how to go back";
    const CheckpointSearch last = latest_checkpoint(folder_->folder());
    return fmt::format("{}; a smaller optim.lr or a longer optim.warmup_steps may help: hinge train --resume {} --set optim.lr={:.2g}",
                       last.found ? "The last good checkpoint is " + last.found->folder : "There is no checkpoint before it",
                       folder_->folder(), 0.3 * settings_.optim.lr);
  }

  double items_per_second() const {
    const double seconds = seconds_before_ + train_seconds_;
    return seconds > 0 ? items_ / seconds : 0;
  }

  double waited_seconds() const { return waited_before_ + trainable_.waited_seconds(); }
  double waiting_share() const {
    const double seconds = seconds_before_ + train_seconds_;
    return seconds > 0 ? std::min(1.0, waited_seconds() / seconds) : 0;  // the time of a step that failed is not among the seconds
  }

  void show(bool last) {
    if (progress_->due() || last) {
      support::Progress::Values values = {{"loss", fmt::format("{:.4f}", last_loss_)},
                                          {"acc", fmt::format("{:.1f}%", 100 * last_accuracy_)},
                                          {trainable_.items() + "/s", fmt::format("{:.0f}", items_per_second())}};
      if (score_) values.emplace_back(trainable_.score_name(), trainable_.score_text(*score_));
      progress_->update(step_, values);
    }
    if (log_steps_ == 0 || (step_ % settings_.run.log_steps != 0 && !last)) return;
    Values values = trainable_.metrics(sums_, log_steps_);
    values.emplace_back("gradient_norm", norm_sum_ / static_cast<double>(log_steps_));
    values.emplace_back("lr", lr_);
    values.emplace_back(trainable_.items() + "_per_second", items_per_second());
    values.emplace_back("waiting_share", waiting_share());
    record("train/", values);
    sums_.clear(), norm_sum_ = 0, log_steps_ = 0;
  }

  void record(const std::string& prefix, Values values) {
    support::MetricRecord entry{step_, {}};
    for (auto& [name, value] : values) {
      name.insert(0, prefix);
      entry.values.emplace_back(name, value);
    }
    if (!metrics_ || written_.contains(values.front().first)) return;
    metrics_->append(entry);
    events_->scalars(step_, values);
  }

  static Values all_metrics(const EvaluationOutcome& outcome) {
    Values all = outcome.metrics;
    all.insert(all.end(), outcome.details.begin(), outcome.details.end());
    return all;
  }

  std::optional<EvaluationOutcome> outcome_of_evaluation() {
    const std::optional<EvaluationOutcome> outcome = trainable_.evaluate(
        stop_, [&](std::string_view doing, int64_t done, int64_t total) { progress_->aside(fmt::format("{} {}/{}", doing, done, total)); });
    progress_->aside("");
    note_skipped();
    return outcome;
  }

  // False: stopped before its end.
  bool evaluate() {
    const std::optional<EvaluationOutcome> outcome = outcome_of_evaluation();
    if (!outcome) return false;
    record("eval/", all_metrics(*outcome));
    score_ = outcome->score;
    evaluated_ = {outcome->metrics.begin(), outcome->metrics.end()};
    evaluated_at_ = step_;
    saved_at_.reset();
    take_if_best(*score_);
    note(fmt::format("step {}: {}", step_, outcome->text));
    return true;
  }

  void take_if_best(double score) {
    if (!best_ || std::isnan(*best_) || score > *best_) best_ = score, best_step_ = step_;
  }

  void log(const std::string& text) {
    if (folder_) folder_->log(text);
  }

  void note(const std::string& text) {
    progress_->note(text);
    log(text);
  }

  void note_skipped() {
    std::vector<std::string> files = trainable_.skipped();
    files.insert(files.end(), skipped_elsewhere_.begin(), skipped_elsewhere_.end());
    for (const std::string& file : files)
      if (skipped_.insert(file).second) note(fmt::format("skipped {}: it cannot be decoded", file));
  }

  // ---- averaging

  // The steps whose weights the mean at the end is of, the last first. They do not depend on when the run was stopped in between.
  std::vector<int64_t> averaged_steps() const {
    std::vector<int64_t> steps;
    if (settings_.run.average < 2) return steps;
    const int64_t every = settings_.checkpoint_steps;
    for (int64_t step = settings_.steps(); step > 0 && std::ssize(steps) < settings_.run.average; step = (step - 1) / every * every)
      steps.push_back(step);
    return steps;
  }

  // Evaluates the mean of the last checkpoints' weights, and leaves it to save() in averaged_. False: stopped before its end.
  bool average() {
    const at::NoGradGuard guard;
    const KeptWeights own(trainable_.parameters());
    std::vector<at::Tensor> sums, mean;
    for (const at::Tensor& value : own.values()) sums.push_back(value.to(at::kDouble));
    double count = 1;
    for (const int64_t step : averaged_steps()) {
      if (step == step_ || !folder_) continue;
      try {
        load_weights(checkpoint_of(folder_->folder(), step).file(kWeights), trainable_.parameters());
      } catch (const std::runtime_error& error) {
        // One that is damaged or gone stays so. One that cannot be read now may be read later, when somebody goes on with the run.
        const auto* refused = dynamic_cast<const support::FileError*>(&error);
        if (refused != nullptr && refused->error_number() != ENOENT) throw;
        note(fmt::format("the mean of the last checkpoints leaves out step {}: {}", step, error.what()));
        continue;
      }
      for (size_t i = 0; i < sums.size(); ++i) sums[i].add_(trainable_.parameters().all()[i].value);
      ++count;
    }
    for (at::Tensor& sum : sums) mean.push_back(sum.div_(count).to(at::kFloat));
    own.put(mean);
    if (group_) share_weights();  // rank 0 has the checkpoints
    const std::optional<EvaluationOutcome> outcome = outcome_of_evaluation();
    if (!outcome) return false;
    record("averaged/", all_metrics(*outcome));
    averaged_ = std::move(mean);
    averaged_score_ = outcome->score;
    averaged_values_ = {outcome->metrics.begin(), outcome->metrics.end()};
    take_if_best(*averaged_score_);
    note(fmt::format("mean of the last {} checkpoints: {}", count, outcome->text));
    return true;
  }

  void save() {
    if (const std::string parameter = parameter_beyond_numbers(); !parameter.empty())
      throw DivergedError(fmt::format("the parameter {} is not finite after step {}. {}", parameter, step_, way_back()));
    if (folder_) write_checkpoint();
    saved_at_ = step_;
    write_status("running", "");
  }

  // Of what all processes have alike.
  void save_together() {
    comparing_ = true;  // until all are known to be the same: another process may be the first to say that they are not
    if (group_) require_same_weights(trainable_.parameters(), *group_);
    comparing_ = false;
    save();
  }

  void write_checkpoint() {
    CheckpointContent content;
    content.step = step_;
    if (evaluated_at_ == step_) content.score = score_;
    content.files = {{kWeights, [&](const std::string& path) { save_weights(path, trainable_.parameters()); }},
                     {kState, [&](const std::string& path) { adam_.save(path); }}};
    content.state = trainable_.checkpoint_state();
    if (best_) content.state["best"] = *best_, content.state["best_step"] = *best_step_;
    if (score_) content.state["score"] = *score_, content.state["evaluated"] = evaluated_, content.state["evaluated_at"] = *evaluated_at_;
    if (!averaged_.empty()) {
      content.files.push_back({kAveraged, [&](const std::string& path) { save_weights(path, trainable_.parameters(), averaged_); }});
      content.state["averaged_score"] = *averaged_score_, content.state["averaged"] = averaged_values_;
    }
    // The part of the next line of metrics that is there already, so that a resumed run writes the same line.
    content.state["log"] = sums_;
    content.state["log"]["steps"] = log_steps_, content.state["log"]["norm"] = norm_sum_;
    content.state["threads"] = workers_.threads();
    content.state["items"] = items_;
    content.state["flops"] = flops_;
    content.state["train_seconds"] = seconds_before_ + train_seconds_;
    content.state["cpu_seconds"] = cpu_before_ + cpu_seconds_;
    content.state["waited_seconds"] = waited_seconds();
    if (step_ < settings_.steps() || average_due()) content.needed = averaged_steps();
    metrics_->sync();
    folder_->save_checkpoint(content, settings_.run.keep);
  }

  void write_status(const std::string& state, const std::string& message) {
    if (!folder_) return;
    RunStatus status;
    status.state = state, status.message = message;
    status.step = step_, status.steps = settings_.steps();
    status.best = best_, status.best_step = best_step_;
    status.values = evaluated_;
    for (const auto& [name, value] : averaged_values_) status.values["averaged_" + name] = value;
    if (!skipped_.empty()) status.values["skipped_files"] = static_cast<double>(skipped_.size());
    status.values[trainable_.items() + "_per_second"] = items_per_second();
    status.values["waiting_share"] = waiting_share();
    status.values["parameters"] = static_cast<double>(trainable_.parameters().count());
    status.values["flops"] = flops_;
    if (peak_flops_ > 0) status.values["peak_flops"] = peak_flops_;
    status.values["train_seconds"] = seconds_before_ + train_seconds_;
    status.values["cpu_seconds"] = cpu_before_ + cpu_seconds_;
    if (group_) {
      const ExchangeTimes times = gradient_.exchange_times();
      status.values["processes"] = group_->world();
      status.values["bytes_sent"] = static_cast<double>(group_->traffic().bytes - bytes_before_);
      status.values["exchange_seconds"] = times.busy;
      status.values["exchange_waited_seconds"] = times.waited;
      status.values["process_seconds"] = train_seconds_;
      status.values["process_steps"] = static_cast<double>(step_ - first_step_);
    }
    status.values["memory_bytes"] = static_cast<double>(support::largest_resident_bytes());
    folder_->write_status(status);
  }

  Trainable& trainable_;
  const LoopSettings settings_;
  std::optional<RunFolder> folder_;  // of rank 0
  const std::atomic<bool>& stop_;
  support::ProgressOutput output_;
  distributed::ProcessGroup* const group_;  // null: one process
  Adam adam_;
  Workers workers_;
  ShardedGradient gradient_;

  int64_t step_ = 0;                   // steps done
  int64_t first_step_ = 0;             // of those, before this process
  int64_t bytes_before_ = 0;           // sent by this process before its first step
  double items_ = 0;                   // worked through in them
  double flops_ = 0;                   // that took
  double peak_flops_ = 0;              // a second that the machine had when this process began
  double train_seconds_ = 0;           // of those by this process
  double seconds_before_ = 0;          // of those before it
  double cpu_seconds_ = 0;             // of all threads in these seconds, by this process
  double cpu_before_ = 0;              // and before it
  double waited_before_ = 0;           // of these, without a batch
  std::optional<int> threads_before_;  // of each worker, in the process that saved the checkpoint
  bool step_is_whole_ = true;          // weights, counts and lines of metrics are all those after step_
  bool comparing_ = false;             // the weights with those of the other processes
  double lr_ = 0, last_loss_ = 0, last_accuracy_ = 0;
  std::optional<double> score_, best_;
  std::map<std::string, double> evaluated_;  // the metrics of the last evaluation
  std::optional<int64_t> best_step_, evaluated_at_, saved_at_;
  std::set<std::string> written_;       // names in the metrics of the step that is gone on with
  std::set<std::string> skipped_;       // files
  std::set<std::string> told_skipped_;  // those that the other processes know of
  std::vector<std::string> skipped_elsewhere_;
  bool all_stop_ = false;               // some process was asked to stop, and all know
  std::vector<ShardOutcome> outcomes_;  // of the last step
  // The next line of metrics.
  Sums sums_;
  double norm_sum_ = 0;
  int64_t log_steps_ = 0;
  std::vector<at::Tensor> averaged_;
  std::optional<double> averaged_score_;
  std::map<std::string, double> averaged_values_;  // the metrics of their evaluation
  std::optional<support::MetricsWriter> metrics_;
  std::optional<support::EventWriter> events_;
  std::optional<support::Progress> progress_;
};

std::optional<Checkpoint> checkpoint_to_resume(const std::string& folder, const support::ProgressOutput& output) {
  CheckpointSearch search = latest_checkpoint(folder);
  if (search.found) {
    for (const std::string& skipped : search.skipped) output.write(fmt::format("skipping a checkpoint: {}\n", skipped));
    return search.found;
  }
  // To begin anew would empty the metrics and look like going on.
  const std::string advice = "train a new run, or put a copy of its checkpoints there";
  if (!search.skipped.empty())
    throw std::runtime_error(fmt::format("none of the checkpoints of '{}' can be used: {}; {}", folder, search.skipped.front(), advice));
  if (const std::optional<std::string> source = imported_from(folder))
    throw std::runtime_error(fmt::format("'{}' was imported from {}, but its weights are not there: import them again", folder, *source));
  RunStatus status;
  try {
    status = read_status(folder);
  } catch (const std::runtime_error&) {
    // A damaged status says nothing.
  }
  // A run is "running" at a step only after that step's checkpoint.
  if (status.state == "stopped" || status.state == "done" || (status.state == "running" && status.step > 0))
    throw std::runtime_error(
        fmt::format("'{}' is {} at step {}, but its checkpoints are gone: {}", folder, status.state, status.step, advice));
  return std::nullopt;
}

}  // namespace

TrainResult run_loop(Trainable& trainable, const LoopSettings& settings, std::optional<RunFolder> folder,
                     const std::optional<Checkpoint>& from, const std::atomic<bool>& stop, support::ProgressOutput output,
                     distributed::ProcessGroup* group) {
  return Loop(trainable, settings, std::move(folder), from, stop, std::move(output), group).run();
}

void require_steps(const LoopSettings& settings, const std::optional<Checkpoint>& from) {
  support::require(!from || from->step <= settings.steps(),
                   fmt::format("optim.steps is {}, but {} steps are done: give at least as many", settings.steps(), from ? from->step : 0));
}

RunToResume open_to_resume(const std::string& folder, const Processes& processes, const support::ProgressOutput& output) {
  RunToResume run;
  if (processes.first()) {
    run.folder.emplace(RunFolder::open(folder));
    run.from = checkpoint_to_resume(folder, output);
  }
  run.from = processes.from_first(run.from);
  return run;
}

uint64_t stream_seed(uint64_t seed, Stream stream, int64_t step) {
  uint64_t x = seed * 0x9E3779B97F4A7C15U + (static_cast<uint64_t>(stream) + static_cast<uint64_t>(step)) * 0xBF58476D1CE4E5B9U +
               0x94D049BB133111EBU;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return (x ^ (x >> 31)) & 0x7FFFFFFFFFFFFFFFU;
}

uint64_t shard_seed(uint64_t seed, int64_t step, int64_t shard) {
  return stream_seed(stream_seed(seed, Stream::first_step, step), Stream::first_step, shard);
}

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string absolute_path(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

void use_threads(int64_t threads) { at::set_num_threads(threads > 0 ? static_cast<int>(threads) : support::default_threads()); }

}  // namespace hinge::train
