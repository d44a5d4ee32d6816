#include "nn/random.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <limits>
#include <mutex>

namespace hinge::nn {

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

int64_t drawn_seed() { return at::randint(std::numeric_limits<int64_t>::max(), {1}, at::kLong).item<int64_t>(); }

int64_t Noise::next() {
  // splitmix64
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return static_cast<int64_t>((x ^ (x >> 31)) & 0x7FFFFFFFFFFFFFFFU);
}

}  // namespace hinge::nn
