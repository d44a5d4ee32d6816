// The gradient of a step whose batch is cut into shards: workers take shards, forward and backward, and the sum is always that of the same
// binary tree. So it has the same bits for every power of two of workers, in one process or in several.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "distributed/process_group.h"
#include "nn/parameters.h"
#include "train/gradient_exchange.h"
#include "train/gradient_taps.h"
#include "train/workers.h"

namespace hinge::train {

// In the order of the parameters; undefined where there is none, which counts as zero.
using Gradients = std::vector<at::Tensor>;

// The gradients of sum_i weights[i] * losses[i], each a scalar. May be called on several threads at once, for one model.
Gradients gradients_of(const nn::Parameters& parameters, const std::vector<at::Tensor>& losses, const std::vector<double>& weights);

class ShardedGradient {
 public:
  // `shards` and the number of workers, those of all processes together, are powers of two, and there are no more workers than shards.
  // `group`: the processes; null for one. `team`: so many consecutive ranks have the same shards, and each a part of their gradients.
  ShardedGradient(const nn::Parameters& parameters, Workers& workers, int64_t shards, distributed::ProcessGroup* group = nullptr,
                  int64_t team = 1);

  // What a shard adds to the gradient; empty for nothing. Called on a worker's thread, beside others.
  using Shard = std::function<Gradients(int64_t shard)>;
  // Worker w computes the consecutive shards [w, w + 1) * shards / workers, one after the other, then all add up what they have; workers
  // are counted through all processes. At most log2(shards / workers) + 1 gradients are kept for each worker. Throws what `shard` throws.
  const Gradients& compute(const Shard& shard);

  // Of this process.
  int64_t first_shard() const { return team_ * own_shards_; }
  int64_t own_shards() const { return own_shards_; }
  ExchangeTimes exchange_times() const { return exchange_ ? exchange_->times() : ExchangeTimes(); }

 private:
  const Gradients& compute_alone(const Shard& shard);
  const Gradients& compute_with_others(const Shard& shard);
  void add_up(std::vector<Gradients>& sums);

  const nn::Parameters& parameters_;
  Workers& workers_;
  const int64_t team_, own_shards_;
  Gradients sum_;
  // With several processes.
  std::unique_ptr<GradientTaps> taps_;
  std::unique_ptr<GradientExchange> exchange_;
};

}  // namespace hinge::train
