#include "nn/random.h"

namespace hinge::nn {

int64_t Noise::next() {
  // splitmix64
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return static_cast<int64_t>((x ^ (x >> 31)) & 0x7FFFFFFFFFFFFFFFU);
}

}  // namespace hinge::nn
