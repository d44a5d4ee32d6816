#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "support/process_memory.h"
#include "support/require.h"
#include "support/threads.h"

namespace hinge::train {

using support::require;

void check(const OptimConfig& optim, const RunConfig& run) {
  require(optim.lr > 0 && std::isfinite(optim.lr), fmt::format("optim.lr must be positive, got {}", optim.lr));
  for (const auto& [key, beta] : {std::pair("beta1", optim.beta1), std::pair("beta2", optim.beta2)})
    require(beta >= 0 && beta < 1, fmt::format("optim.{} must be in [0, 1), got {}", key, beta));
  require(optim.eps > 0 && std::isfinite(optim.eps), fmt::format("optim.eps must be positive, got {}", optim.eps));
  require(optim.weight_decay >= 0 && optim.weight_decay < 1,
          fmt::format("optim.weight_decay must be in [0, 1), got {}", optim.weight_decay));
  require(!optim.clip || *optim.clip > 0, "optim.clip must be positive, or none");
  require(optim.batch >= 1, fmt::format("optim.batch must be at least 1, got {}", optim.batch));
  require(optim.epochs > 0 && optim.epochs <= 10000,
          fmt::format("optim.epochs must be above 0 and at most 10000, got {}; optim.steps may be any number", optim.epochs));
  require(!optim.steps || *optim.steps >= 1, "there is no step to train: optim.steps must be at least 1");
  require(optim.warmup_steps >= 0, fmt::format("optim.warmup_steps cannot be negative, got {}", optim.warmup_steps));
  require(run.eval_every > 0 && run.checkpoint_every > 0, "train.eval_every and train.checkpoint_every must be positive");
  require(run.keep >= 1 && run.log_steps >= 1, "train.keep and train.log_steps must be at least 1");
  require(run.average >= 0, fmt::format("train.average cannot be negative, got {}", run.average));
  for (const auto& [key, value] : {std::pair("shards", run.shards), std::pair("workers", run.workers)})
    require(value == 0 || (value > 0 && std::has_single_bit(static_cast<uint64_t>(value))),
            fmt::format("train.{} must be a power of two, or 0 for the default, got {}", key, value));
  require(run.shards == 0 || run.workers <= run.shards,
          fmt::format("train.workers {} is more than train.shards {}: some would have nothing to do", run.workers, run.shards));
  require(run.shards <= optim.batch, fmt::format("train.shards {} is more than optim.batch {}", run.shards, optim.batch));
  require(run.sequence_parallel > 0 && std::has_single_bit(static_cast<uint64_t>(run.sequence_parallel)),
          fmt::format("train.sequence_parallel must be a power of two, got {}", run.sequence_parallel));
  require(
      run.sequence_parallel == 1 || run.workers <= 1,
      fmt::format("train.workers is {}, but processes that share sequences (train.sequence_parallel {}) have one worker each: take more "
                  "train.threads",
                  run.workers, run.sequence_parallel));
  require(run.threads >= 0, fmt::format("train.threads cannot be negative, got {}", run.threads));
}

Machine Machine::present(int processes) {
  const int cores = std::getenv("OMP_NUM_THREADS") != nullptr ? support::default_threads() : support::usable_cores() / processes;
  return {std::max(1, cores), support::usable_memory_bytes() / processes};
}

double tolerated_unevenness(int64_t parameters) { return parameters < 10'000'000 ? 1.1 : 1.02; }

WorkersPlan plan_workers(const RunConfig& run, int64_t all_parts, int64_t parameters, const Machine& machine, int processes) {
  require(std::has_single_bit(static_cast<uint64_t>(processes)),
          fmt::format("the number of processes must be a power of two, got {}", processes));
  require(run.shards == 0 || processes <= run.shards,
          fmt::format("{} processes are more than train.shards {}: some would have nothing to do", processes, run.shards));
  const int64_t cores = machine.cores, parts = std::max<int64_t>(1, all_parts / processes), shards = run.shards / processes;
  int64_t workers = shards > 0 ? std::min(run.workers, shards) : run.workers;
  if (workers == 0) {
    // Workers of one thread do not wait for each other at every product. Each needs a part of the batch, and memory for its gradients.
    const int64_t levels = shards > 0 ? std::bit_width(static_cast<uint64_t>(shards)) : 1;
    const int64_t gradients = std::max<int64_t>(1, parameters * 4 * levels);
    int64_t most =
        std::min<int64_t>({std::max<int64_t>(1, cores / std::max<int64_t>(1, run.threads)), parts, machine.memory_bytes / 4 / gradients});
    if (shards > 0) most = std::min(most, shards);
    workers = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, most))));
    // 6 cores are better shared by 2 workers of 3 threads than by 4 of one.
    const auto used = [&](int64_t count) { return run.threads > 0 ? count : count * (cores / count); };
    while (workers > 1 && 20 * used(workers) < 17 * std::min(cores, used(workers / 2))) workers /= 2;
  }
  const int64_t threads = run.threads > 0 ? run.threads : std::max<int64_t>(1, cores / workers);
  constexpr int64_t kMost = 4096;
  require(workers <= kMost && threads <= kMost / workers,
          fmt::format("train.workers {} with train.threads {} each are more than {} threads", workers, threads, kMost));
  return {static_cast<int>(workers), static_cast<int>(threads)};
}

int64_t shards_of(const RunConfig& run, const WorkersPlan& plan, int processes) {
  return run.shards > 0 ? run.shards : plan.workers * processes;
}

void resolve_steps(OptimConfig& optim, const StepsOf& steps_of) {
  if (!optim.steps) optim.steps = steps_of(optim.epochs, std::numeric_limits<int64_t>::max());
  require(*optim.steps >= 1, "there is no step to train: optim.epochs and optim.batch give none");
}

LoopSettings loop_settings(const OptimConfig& resolved, const RunConfig& run, const WorkersPlan& plan, const StepsOf& steps_of,
                           int processes) {
  const auto interval = [&](double epochs) { return std::max<int64_t>(1, steps_of(epochs, *resolved.steps)); };
  LoopSettings settings{resolved, run, interval(run.eval_every), interval(run.checkpoint_every)};
  settings.run.shards = shards_of(run, plan, processes), settings.run.workers = plan.workers, settings.run.threads = plan.threads;
  return settings;
}

std::string key_of(const std::string& change) {
  std::string key = change.substr(0, change.find('='));
  std::erase(key, ' ');
  return key;
}

void require_changeable(const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const std::string key = key_of(change);
    if (key == "train.shards")
      throw support::ConfigError(
          fmt::format("--set {}: a run keeps its shards, on which its weights depend; train.workers may change", change));
    if (!key.starts_with("optim.") && !key.starts_with("train.") && key != "data.on_error")
      throw support::ConfigError(
          fmt::format("--set {}: a run keeps its model and its data; with --resume, only keys under optim. and train. and data.on_error "
                      "may be set: train a new run for others",
                      change));
  }
}

}  // namespace hinge::train
