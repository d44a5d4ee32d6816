// Two parameters of their own, for tests that need no model.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <vector>

#include "nn/parameters.h"

namespace hinge::train {

struct Small {
  nn::Parameters parameters;
  at::Tensor kernel, bias;
  Small() {
    at::manual_seed(1);
    kernel = parameters.add("kernel", at::randn({3, 5}), true);
    bias = parameters.add("bias", at::randn({7}), false);
  }
  // In the order of the parameters.
  static std::vector<at::Tensor> gradients(uint64_t seed) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    at::Tensor first = at::randn({3, 5}, generator);
    return {first, at::randn({7}, generator)};
  }
};

}  // namespace hinge::train
