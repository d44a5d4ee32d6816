// The layer norm of one row, for the kernels that have it in memory. Compiled once per target.
#if defined(HINGE_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_NORM_ROWS_INL_H_
#undef HINGE_NORM_ROWS_INL_H_
#else
#define HINGE_NORM_ROWS_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 1 / sqrt(variance + eps). The variance by a pass of its own: no cancellation.
template <typename T> HWY_INLINE T InverseDeviation(const T* HWY_RESTRICT x, T mean, int64_t width, double eps) {
  const hn::ScalableTag<T> d;
  const auto m = hn::Set(d, mean);
  auto squares = hn::Zero(d);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
    const auto from_mean = OnlyFirst(d, hn::Sub(LoadFirst(d, x + j, n), m), n);
    squares = hn::MulAdd(from_mean, from_mean, squares);
  });
  return static_cast<T>(1 / std::sqrt(Total(d, squares) / static_cast<double>(width) + eps));
}

// y = (x - mean) * rstd * weight + bias; y may be x.
template <typename T>
HWY_INLINE void NormRow(const T* x, T mean, T rstd, const T* HWY_RESTRICT weight, const T* HWY_RESTRICT bias, int64_t width, T* y) {
  const hn::ScalableTag<T> d;
  const auto m = hn::Set(d, mean), r = hn::Set(d, rstd);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(LoadFirst(d, x + j, n), m), r);
    StoreFirst(hn::MulAdd(normal, LoadFirst(d, weight + j, n), LoadFirst(d, bias + j, n)), d, y + j, n);
  });
}

// A row of the norm's backward: with g = grad_y * weight and normal = (x - mean) * rstd,
//   grad_x = rstd * (g - mean(g) - normal * mean(g * normal)),  grad_weight += grad_y * normal,  grad_bias += grad_y.
// mean_of(sums) makes a mean over the row of the sums in a vector's lanes. use(gradient) gets a function that gives grad_x for the vector
// at j with n elements, and may overwrite grad_y there.
template <typename T, class MeanOf, class Use>
HWY_INLINE void NormRowBackward(const T* grad_y, const T* x, const T* weight, T mean, T rstd, int64_t width, T* grad_weight, T* grad_bias,
                                const MeanOf& mean_of, const Use& use) {
  const hn::ScalableTag<T> d;
  const auto m = hn::Set(d, mean), r = hn::Set(d, rstd);
  auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
    const auto gy = LoadFirst(d, grad_y + j, n), normal = hn::Mul(hn::Sub(LoadFirst(d, x + j, n), m), r);
    const auto g = hn::Mul(gy, LoadFirst(d, weight + j, n));
    sum_g = hn::Add(sum_g, g);
    sum_gn = hn::MulAdd(g, normal, sum_gn);
    StoreFirst(hn::MulAdd(gy, normal, LoadFirst(d, grad_weight + j, n)), d, grad_weight + j, n);
    StoreFirst(hn::Add(gy, LoadFirst(d, grad_bias + j, n)), d, grad_bias + j, n);
  });
  const auto mean_g = hn::Set(d, mean_of(sum_g)), mean_gn = hn::Set(d, mean_of(sum_gn));
  use([&](int64_t j, int64_t n) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(LoadFirst(d, x + j, n), m), r);
    const auto g = hn::Mul(LoadFirst(d, grad_y + j, n), LoadFirst(d, weight + j, n));
    return hn::Mul(r, hn::NegMulAdd(normal, mean_gn, hn::Sub(g, mean_g)));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
