// kSetBits[byte]: the numbers of the byte's set bits, ascending; zeros behind.
#pragma once

#include <array>
#include <cstdint>

namespace hinge::kernels {

inline constexpr std::array<std::array<uint8_t, 8>, 256> kSetBits = [] {
  std::array<std::array<uint8_t, 8>, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    size_t count = 0;
    for (unsigned bit = 0; bit < 8; ++bit)
      if (byte & (1u << bit)) table[byte][count++] = static_cast<uint8_t>(bit);
  }
  return table;
}();

}  // namespace hinge::kernels
