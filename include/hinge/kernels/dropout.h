// Which attention weights, and which elements of arrays of rows, dropout keeps: Philox4x32-7 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011), plain. The fate of one depends only on its place, so backward finds it again without a stored mask, and no
// result depends on tiling, SIMD target or threads. The vector twin is src/kernels/dropout-inl.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace hinge::kernels {

inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53, kPhiloxMul1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 7;  // the fewest that pass all of BigCrush, as that paper shows

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMul0} * counter[0], p1 = uint64_t{kPhiloxMul1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return counter;
}

// A weight is kept if its 16 random bits are at least this: probabilities are rounded to multiples of 2^-16.
inline uint32_t dropout_threshold(double dropout) { return static_cast<uint32_t>(std::min(std::lround(dropout * 65536), 65535L)); }

// What a kept weight is multiplied by, 1 / (1 - dropout) for the probability as rounded: the expectation stays exact.
inline double dropout_scale(double dropout) { return 65536.0 / (65536 - dropout_threshold(dropout)); }

// Dropout of an array of rows: element j of row i has the fate of key j of row i of head 0 below.
struct Dropout {
  double probability = 0;  // in [0, 1)
  uint64_t seed = 0;
  const int64_t* numbers = nullptr;  // of the rows, if they are some of a larger array: row i has the fate of its row numbers[i]

  int64_t number(int64_t row) const { return numbers ? numbers[row] : row; }
};

// One Philox block gives eight keys 16 bits each: its word w serves the keys j0 + lane + 8 w (low half) and + 32 (high half) of a run of
// 64 keys that starts at a multiple of 64. Eight neighbouring keys are eight neighbouring counters, as SIMD code wants them.
// head: b * Hq + query head. row: query row in the array. key: number of the key within its batch row or jagged sequence.
inline bool dropout_keeps(uint64_t seed, uint32_t threshold, int64_t head, int64_t row, int64_t key) {
  const std::array<uint32_t, 4> counter = {static_cast<uint32_t>(key / 64 * 8 + key % 8), static_cast<uint32_t>(row),
                                           static_cast<uint32_t>(head), 0};
  const uint32_t word = philox4x32(counter, seed)[static_cast<size_t>(key % 32 / 8)];
  return (key % 64 < 32 ? word & 0xFFFF : word >> 16) >= threshold;
}

}  // namespace hinge::kernels
