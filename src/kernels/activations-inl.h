// SIMD twins of the activations in hinge/kernels/activations.h, compiled once per target.
// Each class: value(d, x) = h(x); value_and_slope(d, x, &slope) gives both for the backward pass, sharing the costly parts.
// NaN goes in, NaN comes out. Error bounds are stated and tested in tests/kernels/activations_test.cc.
#if defined(HINGE_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_ACTIVATIONS_INL_H_
#undef HINGE_ACTIVATIONS_INL_H_
#else
#define HINGE_ACTIVATIONS_INL_H_
#endif

#include <cmath>

#include "hinge/kernels/activations.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x <= 0, 1 ulp (what is promised and tested is the bound of every h: activations_test.cc); NaN for NaN. In float, results below
// the normal numbers are 0.
template <class D, class V = hn::Vec<D>> HWY_INLINE V ExpNotPositive(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    // 2^n e^f, f in [-ln 2 / 2, ln 2 / 2]. Added to 1.5 2^23 + 127, x / ln 2 is rounded and leaves n + 127, the exponent of 2^n, in the
    // lowest bits.
    const V magic = hn::Set(d, 12583039.0f);
    const V t = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic), n = hn::Sub(t, magic);
    const V f = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
    // Of degree 6, relative error 3e-9, exact at 0.
    V p = hn::Set(d, 0.0013814599f);
    p = hn::MulAdd(p, f, hn::Set(d, 0.008368717f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.04166839f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.16666521f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.49999994f));
    p = hn::MulAdd(p, f, hn::Set(d, 1));
    p = hn::MulAdd(p, f, hn::Set(d, 1));
    const hn::RebindToUnsigned<D> bits;
    const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, t)));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.336544f)), hn::Mul(p, power));
  } else {
    return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
  }
}

// max(0, x), and NaN for NaN. In this order: x86 gives the second operand when one is NaN. Others give the number, as plain C++ does.
template <class D, class V = hn::Vec<D>> HWY_INLINE V MaxZero(D d, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(hn::Zero(d), x);
#else
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
#endif
}

// s = 1 / (1 + e^-x) and, without cancellation, 1 - s.
template <class D, class V = hn::Vec<D>> HWY_INLINE V Logistic(D d, V x, V& one_minus) {
  const V one = hn::Set(d, 1);
  const V e = ExpNotPositive(d, hn::Neg(hn::Abs(x)));
  const V large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  one_minus = hn::IfThenElse(negative, large, small);
  return hn::IfThenElse(negative, small, large);
}

template <class D, class V = hn::Vec<D>> HWY_INLINE V Logistic(D d, V x) {
  V one_minus;
  return Logistic(d, x, one_minus);
}

// P(X <= -a) for a >= 0, X normal, given e = exp(-a^2/2).
// In float: e t p(t), t = 1 / (1 + 0.36 a), p of degree 8 fitted to exp(a^2/2) P(X <= -a) on [0, 14.6], relative error 3e-7 in
// float arithmetic. In double: erfc of the C library, lane by lane (double is there to be right, not fast).
template <class D, class V = hn::Vec<D>> HWY_INLINE V NormalTail(D d, V a, V e) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    const V one = hn::Set(d, 1);
    const V t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.36f), a, one));
    V p = hn::Set(d, -0.029825543984770775f);
    p = hn::MulAdd(p, t, hn::Set(d, 0.13726992905139923f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.2185593992471695f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.10122108459472656f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.00404622545465827f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.09411046653985977f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.12450064718723297f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.1436152160167694f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.14362134039402008f));
    return hn::Mul(e, hn::Mul(t, p));
  } else {
    (void)e;
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(a, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = 0.5 * std::erfc(lanes[i] * scalar::kInvSqrt2);
    return hn::Load(d, lanes);
  }
}

// kHasZeros: see the table.
// kInTile: so cheap that the score tile applies it to its registers; the others get a pass of their own over the stored tile.
// kSlope: how the backward pass comes by h'(x) once h(x) is stored.
enum class Slope { kStored, kPositiveWeight, kOne };

struct Relu {
  static constexpr bool kHasZeros = scalar::Relu::kHasZeros, kInTile = true;
  static constexpr Slope kSlope = Slope::kPositiveWeight;
  template <class D, class V> static HWY_INLINE V value(D d, V x) { return MaxZero(d, x); }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    slope = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1));
    return value(d, x);
  }
};

struct Relu2 {
  static constexpr bool kHasZeros = scalar::Relu2::kHasZeros, kInTile = true;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V value(D d, V x) {
    const V r = Relu::value(d, x);
    return hn::Mul(r, r);
  }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    const V r = Relu::value(d, x);
    slope = hn::Add(r, r);
    return hn::Mul(r, r);
  }
};

struct Relu6 {
  static constexpr bool kHasZeros = scalar::Relu6::kHasZeros, kInTile = true;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V value(D d, V x) {
    const V r = MaxZero(d, x), six = hn::Set(d, 6);
    return hn::IfThenElse(hn::Gt(r, six), six, r);
  }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    slope = hn::IfThenElseZero(hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, hn::Set(d, 6))), hn::Set(d, 1));
    return value(d, x);
  }
};

struct Identity {
  static constexpr bool kHasZeros = scalar::Identity::kHasZeros, kInTile = true;
  static constexpr Slope kSlope = Slope::kOne;
  template <class D, class V> static HWY_INLINE V value(D, V x) { return x; }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    slope = hn::Set(d, 1);
    return x;
  }
};

struct Sigmoid {
  static constexpr bool kHasZeros = scalar::Sigmoid::kHasZeros, kInTile = false;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V value(D d, V x) { return Logistic(d, x); }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    V one_minus;
    const V s = Logistic(d, x, one_minus);
    slope = hn::Mul(s, one_minus);
    return s;
  }
};

struct Silu {
  static constexpr bool kHasZeros = scalar::Silu::kHasZeros, kInTile = false;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V value(D d, V x) { return hn::Mul(x, Logistic(d, x)); }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    V one_minus;
    const V s = Logistic(d, x, one_minus);
    const V xs = hn::Mul(x, s);
    slope = hn::MulAdd(xs, one_minus, s);  // s (1 + x (1 - s))
    return xs;
  }
};

struct Softplus {
  static constexpr bool kHasZeros = scalar::Softplus::kHasZeros, kInTile = false;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V value(D d, V x) {
    return hn::Add(Relu::value(d, x), hn::Log1p(d, ExpNotPositive(d, hn::Neg(hn::Abs(x)))));
  }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    const V one = hn::Set(d, 1);
    const V e = ExpNotPositive(d, hn::Neg(hn::Abs(x)));
    const V s = hn::Div(one, hn::Add(one, e));                         // sigmoid(|x|)
    slope = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, s), s);  // below zero e / (1 + e), without cancellation
    return hn::Add(Relu::value(d, x), hn::Log1p(d, e));
  }
};

// x Phi(x); Phi'(x) = exp(-x^2/2) / sqrt(2 pi)
struct Gelu {
  static constexpr bool kHasZeros = scalar::Gelu::kHasZeros, kInTile = false;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V cdf(D d, V x, V& e) {
    using T = hn::TFromD<D>;
    const V a = hn::Abs(x);
    e = ExpNotPositive(d, hn::Mul(hn::Mul(x, x), hn::Set(d, static_cast<T>(-0.5))));
    const V tail = NormalTail(d, a, e);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1), tail));
  }
  template <class D, class V> static HWY_INLINE V value(D d, V x) {
    V e;
    return hn::Mul(x, cdf(d, x, e));
  }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    using T = hn::TFromD<D>;
    V e;
    const V phi = cdf(d, x, e);
    slope = hn::MulAdd(hn::Mul(x, e), hn::Set(d, static_cast<T>(scalar::kInvSqrt2Pi)), phi);
    return hn::Mul(x, phi);
  }
};

// x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
struct GeluTanh {
  static constexpr bool kHasZeros = scalar::GeluTanh::kHasZeros, kInTile = false;
  static constexpr Slope kSlope = Slope::kStored;
  template <class D, class V> static HWY_INLINE V gate(D d, V x, V xx, V& one_minus) {
    using T = hn::TFromD<D>;
    const V inner = hn::MulAdd(hn::Mul(x, xx), hn::Set(d, static_cast<T>(0.044715)), x);
    return Logistic(d, hn::Mul(inner, hn::Set(d, static_cast<T>(2 * scalar::kSqrt2OverPi))), one_minus);
  }
  template <class D, class V> static HWY_INLINE V value(D d, V x) {
    V one_minus;
    return hn::Mul(x, gate(d, x, hn::Mul(x, x), one_minus));
  }
  template <class D, class V> static HWY_INLINE V value_and_slope(D d, V x, V& slope) {
    using T = hn::TFromD<D>;
    V one_minus;
    const V xx = hn::Mul(x, x);
    const V s = gate(d, x, xx, one_minus);
    const V xs = hn::Mul(x, s);
    const V twice_du = hn::MulAdd(xx, hn::Set(d, static_cast<T>(6 * 0.044715 * scalar::kSqrt2OverPi)),
                                  hn::Set(d, static_cast<T>(2 * scalar::kSqrt2OverPi)));
    // s (1 - s) is 0 where the gate is shut or open; x^2 may be infinite there.
    const V closed = hn::Mul(xs, one_minus);
    const V bend = hn::IfThenElse(hn::Eq(closed, hn::Zero(d)), hn::Zero(d), hn::Mul(closed, twice_du));
    slope = hn::Add(s, bend);
    return xs;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
