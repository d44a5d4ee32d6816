// The random numbers of a forward pass in training.
#pragma once

#include <cstdint>

namespace hinge::nn {

// Seeds for everything that a forward pass drops, one after another from a first one: the same first one, the same noise.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  int64_t next();

 private:
  uint64_t state_;
};

}  // namespace hinge::nn
