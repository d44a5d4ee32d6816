// The keys under [optim] and [train] that every task's config has, and what the loop makes of them. A task extends the structs by keys of
// its own, and gives defaults of its own in their constructors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/config.h"
#include "train/run_folder.h"
#include "train/schedule.h"

namespace hinge::train {

struct OptimConfig {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::optional<double> clip = 1.0;
  int64_t batch = 128;
  double epochs = 1;
  std::optional<int64_t> steps = {};
  int64_t warmup_steps = 0;
  Schedule schedule = Schedule::cosine;

  // `batch_help`: what the batch of the task is.
  template <class V> void visit(V& v, const char* batch_help = "examples of a step") {
    v("lr", lr, "peak learning rate of Adam");
    v("beta1", beta1, "Adam's decay rate of the mean of the gradients");
    v("beta2", beta2, "Adam's decay rate of the mean of their squares");
    v("eps", eps, "added to the root of the mean square");
    v("weight_decay", weight_decay, "share by which weights shrink in each step; follows the schedule, but is not multiplied by lr");
    v("clip", clip, "clip the global gradient norm to this");
    v("batch", batch, batch_help);
    v("epochs", epochs, "passes over the training data");
    v("steps", steps, "number of steps, instead of epochs");
    v("warmup_steps", warmup_steps, "steps over which the learning rate grows from 0");
    v("schedule", schedule, "shape of the learning rate after warm-up");
  }
};

struct RunConfig {
  int64_t seed = 0;
  int64_t shards = 0, workers = 0, threads = 0;
  double eval_every = 1, checkpoint_every = 1;
  int64_t log_steps = 20, keep = 2;
  int64_t average = 0;
  int64_t sequence_parallel = 1;
  bool gradient_checkpointing = false;

  template <class V> void visit(V& v) {
    v("seed", seed, "seed of the weights, the data order and everything else that is random");
    v("shards", shards,
      "parts of a batch whose gradients are computed one by one, a power of two; more of them take less memory; 0: one per worker of all "
      "processes");
    v("workers", workers,
      "groups of threads of a process that work on shards side by side, a power of two; 0: chosen for the model and the machine");
    v("threads", threads, "threads of each worker; 0: all workers of a process together have OMP_NUM_THREADS threads, else one per core");
    v("eval_every", eval_every,
      "epochs between evaluations; the last step is always evaluated, and nothing in the half interval before it");
    v("checkpoint_every", checkpoint_every, "epochs between checkpoints");
    v("log_steps", log_steps, "steps between lines of metrics");
    v("keep", keep, "checkpoints to keep besides the best");
    v("average", average, "at the end, also save the average of the weights of this many last checkpoints; 0 or 1: do not");
    v("sequence_parallel", sequence_parallel,
      "processes that share the tokens of each sequence, a power of two: groups of so many consecutive ranks work on the same shards");
    v("gradient_checkpointing", gradient_checkpointing,
      "keep only the blocks' inputs for the backward pass: less memory, a third more time");
  }
};

// Throws std::runtime_error with the key, for values that nothing can be trained with.
void check(const OptimConfig& optim, const RunConfig& run);

// How a step's work is shared out.
struct WorkersPlan {
  int workers = 1, threads = 1;  // threads of each worker
};
struct Machine {
  int cores = 1;  // to use
  int64_t memory_bytes = 0;

  // What one of several processes of a run on this machine may use.
  static Machine present(int processes = 1);
};
// How much longer than an even share the longest part of a batch may take for workers that share it to be as fast as one worker with all
// threads, which wait for each other at every product. Measured on two cores: with 2.3 M parameters that waiting takes a fifth of the
// time, with 37 M one percent.
double tolerated_unevenness(int64_t parameters);
// What the keys leave open, by the size of the work: every batch can be cut into `parts` parts of about equal size. With several processes
// the plan is that of each. Throws std::runtime_error with the key.
WorkersPlan plan_workers(const RunConfig& run, int64_t parts, int64_t parameters, const Machine& machine = Machine::present(),
                         int processes = 1);
// The shards that a run begins with: those of the config, or the smallest power of two that gives each worker one.
int64_t shards_of(const RunConfig& run, const WorkersPlan& plan, int processes = 1);

// The steps of that many epochs, or `most` if there are more: what a task knows of its data.
using StepsOf = std::function<int64_t(double epochs, int64_t most)>;

// Fills in the number of steps from the epochs, unless it is given. Throws std::runtime_error if there is none.
void resolve_steps(OptimConfig& optim, const StepsOf& steps_of);

// What the loop is told: the intervals in steps.
struct LoopSettings {
  OptimConfig optim = {};  // resolved: has its steps
  RunConfig run = {};      // resolved: has its shards, workers and threads
  int64_t eval_steps = 1, checkpoint_steps = 1;

  int64_t steps() const { return optim.steps.value_or(1); }
};
LoopSettings loop_settings(const OptimConfig& resolved, const RunConfig& run, const WorkersPlan& plan, const StepsOf& steps_of,
                           int processes = 1);

// The key of "optim.lr=1e-4".
std::string key_of(const std::string& change);
// Changes a config by such texts, one after the other. A run's config has the steps of its epochs, too: other epochs take them back.
template <class Config> void change_config(Config& config, const std::vector<std::string>& changes) {
  for (const std::string& change : changes)
    if (key_of(change) == "optim.epochs") config.optim.steps.reset();
  for (const std::string& change : changes) support::override_config(config, change);
}
// Throws support::ConfigError unless a run may go on with such changes.
void require_changeable(const std::vector<std::string>& changes);

// The config of a run, with changes. Throws std::runtime_error.
template <class Config> Config read_run_config(const std::string& run, const std::vector<std::string>& changes = {}) {
  require_run(run);
  Config config;
  support::read_config(config, config_path(run));
  change_config(config, changes);
  return config;
}

// The same to go on with.
template <class Config> Config config_to_resume(const std::string& run, const std::vector<std::string>& changes) {
  Config config = read_run_config<Config>(run, changes);
  require_changeable(changes);
  return config;
}

}  // namespace hinge::train
