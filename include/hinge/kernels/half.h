// bfloat16 and float16: types that attention stores and does not compute with. Here are their single numbers; vectors of them are in
// src/kernels/half-inl.h.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace hinge::kernels {

// The upper half of a float32: 8 bits of exponent, 7 of mantissa.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  // The nearest, of two the even one.
  explicit constexpr BFloat16(float value) : bits(0) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const bool is_nan = (x & 0x7fffffff) > 0x7f800000;
    bits = static_cast<uint16_t>((is_nan ? x | 0x400000 : x + 0x7fff + (x >> 16 & 1)) >> 16);
  }
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// IEEE binary16: 5 bits of exponent, 10 of mantissa.
struct Float16 {
  uint16_t bits;

  Float16() = default;
  // The nearest, of two the even one; infinite from 65520 on.
  explicit constexpr Float16(float value) : bits(0) {
    const uint32_t x = std::bit_cast<uint32_t>(value), size = x & 0x7fffffff;
    uint32_t half = 0;
    if (size >= kInfiniteFrom) {
      half = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    } else if (size < kNormalFrom) {
      // Of the sum with 1/2, the last bit of the mantissa is worth the smallest subnormal, 2^-24: the addition rounds.
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    } else {
      half = (size - kExponentShift + 0xfff + (size >> 13 & 1)) >> 13;
    }
    bits = static_cast<uint16_t>(half | (x & 0x80000000) >> 16);
  }
  constexpr operator float() const {
    const uint32_t size = uint32_t{bits & 0x7fffu} << 13, sign = uint32_t{bits & 0x8000u} << 16;
    if (size >= kInfinite) return std::bit_cast<float>((size + 2 * kExponentShift) | sign);
    if (size >= kLeastNormal) return std::bit_cast<float>((size + kExponentShift) | sign);
    // With the exponent of the least normal number, and that number subtracted again.
    const float value = std::bit_cast<float>(size + kNormalFrom) - std::bit_cast<float>(kNormalFrom);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }

  static constexpr uint32_t kExponentShift = (127 - 15) << 23;  // between the exponents of both types
  static constexpr uint32_t kNormalFrom = (127 - 14) << 23;     // 2^-14, the bits of a float32
  static constexpr uint32_t kInfiniteFrom = (127 + 16) << 23;   // 2^16; less is rounded up to it where it must be
  static constexpr uint32_t kInfinite = 0x7c00 << 13, kLeastNormal = 0x0400 << 13;
};

// What is computed with numbers that are stored as S.
template <typename S> inline constexpr bool kIsOnlyStored = std::is_same_v<S, BFloat16> || std::is_same_v<S, Float16>;
template <typename S> using ComputeType = std::conditional_t<kIsOnlyStored<S>, float, S>;

}  // namespace hinge::kernels
