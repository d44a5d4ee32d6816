// Softmax of one row, for the kernels that have a row of numbers in memory. Compiled once per target.
#if defined(HINGE_SOFTMAX_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_SOFTMAX_ROWS_INL_H_
#undef HINGE_SOFTMAX_ROWS_INL_H_
#else
#define HINGE_SOFTMAX_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/activations-inl.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Long rows are summed in stretches of this many elements, whose sums are added in float64.
inline constexpr int64_t kStretch = 1024;

template <typename T> HWY_INLINE T LargestOf(const T* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  T largest = x[0];
  int64_t j = 0;
  if (n >= 2 * N) {
    auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + N);
    for (j = 2 * N; j + 2 * N <= n; j += 2 * N) a = hn::Max(a, hn::LoadU(d, x + j)), b = hn::Max(b, hn::LoadU(d, x + j + N));
    largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
  }
  for (; j < n; ++j) largest = std::max(largest, x[j]);
  return largest;
}

template <typename T> HWY_INLINE double SumOf(const T* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<T> d;
  double total = 0;
  for (int64_t first = 0; first < n; first += kStretch) {
    auto sum = hn::Zero(d);
    ForVectors(d, std::min(kStretch, n - first),
               [&](int64_t j, int64_t lanes) HWY_ATTR { sum = hn::Add(sum, LoadFirst(d, x + first + j, lanes)); });
    total += Total(d, sum);
  }
  return total;
}

// e[j] = exp(x[j] - largest); returns their sum. e may be x, or null.
template <typename T> HWY_INLINE double ExpAndSum(const T* x, int64_t n, T largest, T* e) {
  const hn::ScalableTag<T> d;
  const auto top = hn::Set(d, largest);
  double total = 0;
  for (int64_t first = 0; first < n; first += kStretch) {
    auto sum = hn::Zero(d);
    ForVectors(d, std::min(kStretch, n - first), [&](int64_t j, int64_t lanes) HWY_ATTR {
      const auto value = OnlyFirst(d, ExpNotPositive(d, hn::Sub(LoadFirst(d, x + first + j, lanes), top)), lanes);
      if (e) StoreFirst(value, d, e + first + j, lanes);
      sum = hn::Add(sum, value);
    });
    total += Total(d, sum);
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
