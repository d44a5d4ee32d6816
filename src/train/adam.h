// Adam over the parameters of a model, with the state that a checkpoint needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "hinge/kernels/adam.h"
#include "nn/parameters.h"
#include "train/sharded_gradient.h"

namespace hinge::train {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

class Adam {
 public:
  Adam(const nn::Parameters& parameters, const AdamOptions& options);

  // The norm of all gradients together; parameters without a gradient count as zero.
  double gradient_norm(const Gradients& gradients, kernels::Parallel& parallel) const;
  // One step with the gradients times grad_scale; kernels shrink by the share `decay`.
  void step(const Gradients& gradients, double lr, double decay, double grad_scale, kernels::Parallel& parallel);

  int64_t steps() const { return steps_; }
  // The moments with their parameters' names, in the order m, v.
  void save(const std::string& path) const;
  void load(const std::string& path, int64_t steps);
  // Gives rank 0's moments and number of steps to all.
  void share(distributed::ProcessGroup& group);

 private:
  std::vector<kernels::AdamTensor<float>> tensors(const Gradients& gradients, double decay) const;

  const nn::Parameters& parameters_;
  AdamOptions options_;
  std::vector<at::Tensor> m_, v_;
  int64_t steps_ = 0;
};

}  // namespace hinge::train
