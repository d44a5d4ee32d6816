// Vectors of T from arrays of what is stored, S, and back: float32 and float64 as they are, bfloat16 and float16 (hinge/kernels/half.h)
// from and to float32, rounded to the nearest. Compiled once per target.
#if defined(HINGE_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_HALF_INL_H_
#undef HINGE_HALF_INL_H_
#else
#define HINGE_HALF_INL_H_
#endif

#include <cstdint>

#include "hinge/kernels/half.h"
#include "hwy/highway.h"

// Where the processor converts float16; elsewhere Highway's own conversion neither rounds nor knows infinity.
#undef HINGE_HAS_FLOAT16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || (HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON)
#define HINGE_HAS_FLOAT16 1
#else
#define HINGE_HAS_FLOAT16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D> using Bits32 = hn::RebindToUnsigned<D>;
template <class D> using Bits16 = hn::Rebind<uint16_t, D>;

// 16 bits each, as 32, and back: the upper 16 must be 0.
template <class D> HWY_INLINE hn::Vec<Bits32<D>> LoadBits(D, const uint16_t* from) {
  return hn::PromoteTo(Bits32<D>(), hn::LoadU(Bits16<D>(), from));
}
template <class D> HWY_INLINE void StoreBits(hn::Vec<Bits32<D>> bits, D, uint16_t* to) {
  const hn::RebindToSigned<D> integers;
  hn::StoreU(hn::DemoteTo(Bits16<D>(), hn::BitCast(integers, bits)), Bits16<D>(), to);
}

template <class D> HWY_INLINE hn::Mask<Bits32<D>> IsNotANumber(D, hn::Vec<D> x) {
  return hn::RebindMask(Bits32<D>(), hn::Not(hn::Eq(x, x)));
}

// ---- Loads of a vector; its elements need not be aligned.

template <class D, typename T = hn::TFromD<D>> HWY_INLINE hn::Vec<D> LoadStored(D d, const T* from) { return hn::LoadU(d, from); }

template <class D> HWY_INLINE hn::Vec<D> LoadStored(D d, const BFloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(LoadBits(d, &from->bits)));
}

template <class D> HWY_INLINE hn::Vec<D> LoadStored(D d, const Float16* from) {
#if HINGE_HAS_FLOAT16
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), hn::LoadU(Bits16<D>(), &from->bits)));
#else
  // As Float16 does it.
  const Bits32<D> u;
  const auto bits = LoadBits(d, &from->bits);
  const auto size = hn::ShiftLeft<13>(hn::And(bits, hn::Set(u, 0x7fff))), sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(u, 0x8000)));
  const auto shift = hn::Set(u, Float16::kExponentShift), least = hn::Set(u, Float16::kNormalFrom);
  const auto is_small = hn::Lt(size, hn::Set(u, Float16::kLeastNormal)), is_finite = hn::Lt(size, hn::Set(u, Float16::kInfinite));
  const auto normal = hn::Add(hn::Add(size, shift), hn::IfThenZeroElse(is_finite, shift));
  const auto subnormal = hn::BitCast(u, hn::Sub(hn::BitCast(d, hn::Add(size, least)), hn::BitCast(d, least)));
  return hn::BitCast(d, hn::Or(hn::IfThenElse(is_small, subnormal, normal), sign));
#endif
}

// ---- Stores

template <class D, typename T = hn::TFromD<D>> HWY_INLINE void StoreStored(hn::Vec<D> x, D d, T* to) { hn::StoreU(x, d, to); }

template <class D> HWY_INLINE void StoreStored(hn::Vec<D> x, D d, BFloat16* to) {
  const Bits32<D> u;
  const auto bits = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff))), quiet = hn::Or(bits, hn::Set(u, 0x400000));
  StoreBits(hn::ShiftRight<16>(hn::IfThenElse(IsNotANumber(d, x), quiet, rounded)), d, &to->bits);
}

template <class D> HWY_INLINE void StoreStored(hn::Vec<D> x, D d, Float16* to) {
#if HINGE_HAS_FLOAT16
  hn::StoreU(hn::BitCast(Bits16<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x)), Bits16<D>(), &to->bits);
#else
  // As Float16 does it.
  const Bits32<D> u;
  const auto bits = hn::BitCast(u, x), sign = hn::And(bits, hn::Set(u, 0x80000000)), size = hn::Xor(bits, sign);
  const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(u, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(size, hn::Set(u, Float16::kExponentShift)), hn::Add(odd, hn::Set(u, 0xfff))));
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(d, size), half)), hn::BitCast(u, half));
  const auto finite = hn::IfThenElse(hn::Lt(size, hn::Set(u, Float16::kNormalFrom)), subnormal, normal);
  const auto large = hn::IfThenElse(IsNotANumber(d, x), hn::Set(u, 0x7e00), hn::Set(u, 0x7c00));
  const auto rounded = hn::IfThenElse(hn::Lt(size, hn::Set(u, Float16::kInfiniteFrom)), finite, large);
  StoreBits(hn::Or(rounded, hn::ShiftRight<16>(sign)), d, &to->bits);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
