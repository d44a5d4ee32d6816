#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/require.h"

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
  require(optim.accumulate >= 1, fmt::format("optim.accumulate must be at least 1, got {}", optim.accumulate));
  require(optim.batch >= optim.accumulate, fmt::format("optim.batch {} is less than optim.accumulate {}", optim.batch, optim.accumulate));
  require(optim.epochs > 0 && optim.epochs <= 10000,
          fmt::format("optim.epochs must be above 0 and at most 10000, got {}; optim.steps may be any number", optim.epochs));
  require(!optim.steps || *optim.steps >= 1, "there is no step to train: optim.steps must be at least 1");
  require(optim.warmup_steps >= 0, fmt::format("optim.warmup_steps cannot be negative, got {}", optim.warmup_steps));
  require(run.eval_every > 0 && run.checkpoint_every > 0, "train.eval_every and train.checkpoint_every must be positive");
  require(run.keep >= 1 && run.log_steps >= 1, "train.keep and train.log_steps must be at least 1");
  require(run.average >= 0, fmt::format("train.average cannot be negative, got {}", run.average));
}

void resolve_steps(OptimConfig& optim, const StepsOf& steps_of) {
  if (!optim.steps) optim.steps = steps_of(optim.epochs, std::numeric_limits<int64_t>::max());
  require(*optim.steps >= 1, "there is no step to train: optim.epochs and optim.batch give none");
}

LoopSettings loop_settings(const OptimConfig& resolved, const RunConfig& run, const StepsOf& steps_of) {
  const auto interval = [&](double epochs) { return std::max<int64_t>(1, steps_of(epochs, *resolved.steps)); };
  return {resolved, run, interval(run.eval_every), interval(run.checkpoint_every)};
}

std::string key_of(const std::string& change) {
  std::string key = change.substr(0, change.find('='));
  std::erase(key, ' ');
  return key;
}

void require_changeable(const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const std::string key = key_of(change);
    if (!key.starts_with("optim.") && !key.starts_with("train.") && key != "data.on_error")
      throw support::ConfigError(
          fmt::format("--set {}: a run goes on with the model and the data it has; with --resume, keys under optim. and train. may be set, "
                      "and data.on_error: train a new run for others",
                      change));
  }
}

}  // namespace hinge::train
