// Random numbers that depend only on what they are for: Philox keyed by a seed, counted by (purpose, epoch, item, draw).
// No state is shared, so results do not depend on the number of threads or on where a run was resumed.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "hinge/kernels/dropout.h"

namespace hinge::data {

// What the numbers are for; each has its own stream.
enum class Purpose : uint32_t { augment, shuffle, mixup, split, synthetic_class, synthetic_image };

class Random {
 public:
  // epoch: an epoch, or a step; item: an example, or 0.
  Random(uint64_t seed, Purpose purpose, uint64_t epoch, uint64_t item)
      : key_(seed), counter_{0, static_cast<uint32_t>(purpose), static_cast<uint32_t>(epoch), static_cast<uint32_t>(item)} {}

  uint32_t bits() {
    if (used_ == block_.size()) {
      block_ = kernels::philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }

  double uniform() { return bits() * 0x1p-32; }               // in [0, 1)
  double uniform_open() { return (bits() + 0.5) * 0x1p-32; }  // in (0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  bool coin() { return bits() >> 31 != 0; }

  // In [0, n), n up to 2^32: the high word of 64 random bits times n.
  uint64_t below(uint64_t n) {
    const uint64_t high = bits(), low = bits();
    return (high * n + (low * n >> 32)) >> 32;
  }

  double normal() {  // Box-Muller
    const double radius = std::sqrt(-2 * std::log(uniform_open()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  // The ratio of two gammas, each as its logarithm so that small p do not underflow.
  double beta(double p) { return 1 / (1 + std::exp(log_gamma_variate(p) - log_gamma_variate(p))); }

 private:
  // Marsaglia and Tsang (2000) for shape p + 1, brought down to p by a power of a uniform number.
  double log_gamma_variate(double p) {
    const double d = p + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(uniform_open()) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v) + std::log(uniform_open()) / p;
    }
  }

  uint64_t key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  size_t used_ = 4;
};

}  // namespace hinge::data
