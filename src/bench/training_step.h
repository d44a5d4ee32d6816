// A training step as the loop of `hinge train` makes it, for the benchmarks: shards side by side on workers, then clipping and Adam.
#pragma once

#include "nn/parameters.h"
#include "support/process_memory.h"
#include "train/adam.h"
#include "train/config.h"
#include "train/sharded_gradient.h"
#include "train/workers.h"

namespace hinge::bench {

class TrainingStep {
 public:
  // On `threads` threads, which as many workers share as a training of such a model would have. `parts`: as of train::plan_workers.
  TrainingStep(const nn::Parameters& parameters, const train::AdamOptions& adam, int64_t parts, int threads)
      : plan_(train::plan_workers({}, parts, parameters.count(), {threads, support::usable_memory_bytes()})),
        workers_(plan_.workers, plan_.threads),
        gradient_(parameters, workers_, plan_.workers),
        adam_(parameters, adam) {}

  train::Workers& workers() { return workers_; }

  // `shard`: the gradients of a part of the batch; there are as many as workers.
  void step(double lr, double decay, const train::ShardedGradient::Shard& shard) {
    const train::Gradients& gradients = gradient_.compute(shard);
    train::WorkersParallel parallel(workers_);
    const double norm = adam_.gradient_norm(gradients, parallel);
    adam_.step(gradients, lr, decay, norm > 1 ? 1 / norm : 1, parallel);
  }

 private:
  train::WorkersPlan plan_;
  train::Workers workers_;
  train::ShardedGradient gradient_;
  train::Adam adam_;
};

}  // namespace hinge::bench
