// Vector twin of hinge/kernels/dropout.h: dropout of a run of weights. Eight neighbouring keys at a time on every target, as the
// generator counts them.
#if defined(HINGE_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_DROPOUT_INL_H_
#undef HINGE_DROPOUT_INL_H_
#else
#define HINGE_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "hinge/kernels/dropout.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template <bool kApply, typename T>
HWY_NOINLINE void DropoutRun(uint64_t seed, uint32_t threshold, int64_t head, int64_t row, int64_t first_key, int64_t count,
                             T* HWY_RESTRICT out) {
  for (int64_t j = 0; j < count; ++j) {
    if (!dropout_keeps(seed, threshold, head, row, first_key + j))
      out[j] = 0;
    else if (!kApply)
      out[j] = 1;
  }
}

#else

// High and low halves of the 32 x 32 bit products of each lane with a constant.
template <class D, class V = hn::Vec<D>> HWY_INLINE void MulWide(D d, V x, V multiplier, V& high, V& low) {
  const hn::Repartition<uint64_t, D> d64;
  const auto even = hn::MulEven(x, multiplier);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x))), multiplier);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

// The four words of Philox for the counters (first + lane, row, head, 0).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void PhiloxWords(D d, uint32_t first, uint32_t row, uint32_t head, uint64_t seed, V* HWY_RESTRICT words) {
  V c0 = hn::Iota(d, first), c1 = hn::Set(d, row), c2 = hn::Set(d, head), c3 = hn::Zero(d);
  const V mul0 = hn::Set(d, kPhiloxMul0), mul1 = hn::Set(d, kPhiloxMul1);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    V high0, low0, high1, low1;
    MulWide(d, c0, mul0, high0, low0);
    MulWide(d, c2, mul1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c3 = low0;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// out[j] = 0 for the dropped ones of the `count` keys from first_key (a multiple of 64) on, and as it was (kApply) or 1 for the others;
// reads and writes whole runs of 64.
template <bool kApply, typename T>
HWY_NOINLINE void DropoutRun(uint64_t seed, uint32_t threshold, int64_t head, int64_t row, int64_t first_key, int64_t count,
                             T* HWY_RESTRICT out) {
  const hn::CappedTag<uint32_t, 8> d;
  const hn::RebindToSigned<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V low = hn::Set(d, 0xFFFF);
  const auto limit = hn::Set(di, static_cast<int32_t>(threshold) - 1);
  const auto write = [&](V bits, T* HWY_RESTRICT to) HWY_ATTR {
    const auto kept = hn::Gt(hn::BitCast(di, bits), limit);
    if constexpr (sizeof(T) == 4) {
      const hn::Rebind<T, decltype(d)> df;
      const auto value = kApply ? hn::LoadU(df, to) : hn::Set(df, T{1});
      hn::StoreU(hn::IfThenElseZero(hn::RebindMask(df, kept), value), df, to);
    } else {
      int32_t keep[8];
      hn::StoreU(hn::VecFromMask(di, kept), di, keep);
      for (int64_t i = 0; i < N; ++i) to[i] = keep[i] ? (kApply ? to[i] : T{1}) : T{0};
    }
  };
  for (int64_t j = 0; j < count; j += 64) {
    for (int64_t lane = 0; lane < 8; lane += N) {
      V words[4];
      PhiloxWords(d, static_cast<uint32_t>((first_key + j) / 8 + lane), static_cast<uint32_t>(row), static_cast<uint32_t>(head), seed,
                  words);
      HWY_UNROLL(4)
      for (int w = 0; w < 4; ++w) {
        write(hn::And(words[w], low), out + j + 8 * w + lane);
        write(hn::ShiftRight<16>(words[w]), out + j + 8 * w + lane + 32);
      }
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
