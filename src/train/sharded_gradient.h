// The gradient of a step whose batch is cut into shards: workers take shards, forward and backward, and the sum is always that of the same
// binary tree. So it has the same bits for every power of two of workers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/parameters.h"
#include "train/workers.h"

namespace hinge::train {

// In the order of the parameters; undefined where there is none, which counts as zero.
using Gradients = std::vector<at::Tensor>;

// The gradients of sum_i weights[i] * losses[i], each a scalar. May be called on several threads at once, for one model.
Gradients gradients_of(const nn::Parameters& parameters, const std::vector<at::Tensor>& losses, const std::vector<double>& weights);

class ShardedGradient {
 public:
  // `shards` and the number of workers are powers of two, and there are no more workers than shards.
  ShardedGradient(const nn::Parameters& parameters, Workers& workers, int64_t shards);

  // What a shard adds to the gradient; empty for nothing. Called on a worker's thread, beside others.
  using Shard = std::function<Gradients(int64_t shard)>;
  // Worker w computes the consecutive shards [w, w + 1) * shards / workers, one after the other, then all add up what they have. At most
  // log2(shards / workers) + 1 gradients are kept for each worker. Throws what `shard` throws.
  const Gradients& compute(const Shard& shard);

 private:
  void add_up(std::vector<Gradients>& sums);

  const nn::Parameters& parameters_;
  Workers& workers_;
  const int64_t shards_;
  Gradients sum_;
};

}  // namespace hinge::train
