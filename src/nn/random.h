// Random numbers of training: LibTorch's generator for the CPU, which seeds come from, and the seeds of one forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hinge::nn {

// What the generator will draw next; set again, it draws the same.
at::Tensor generator_state();
void set_generator_state(const at::Tensor& state);

// A seed drawn from it, for the counter-based generators of the kernels.
int64_t drawn_seed();

// Seeds for everything that a forward pass drops, one after another from a first one: the same first one, the same noise.
class Noise {
 public:
  explicit Noise(int64_t seed) : state_(static_cast<uint64_t>(seed)) {}
  int64_t next();

 private:
  uint64_t state_;
};

}  // namespace hinge::nn
