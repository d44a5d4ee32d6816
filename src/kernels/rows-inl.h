// What the kernels over rows of dense layers share: vectors at the end of a row, and sums over rows that do not depend on the number of
// workers. Compiled once per target.
#if defined(HINGE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_ROWS_INL_H_
#undef HINGE_ROWS_INL_H_
#else
#define HINGE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hinge/kernels/parallel.h"
#include "hwy/highway.h"
#include "kernels/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(j, n) for the vectors of [0, width): n is the number of lanes, or less for the last one.
template <class D, class Body> HWY_INLINE void ForVectors(D d, int64_t width, const Body& body) {
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + N <= width; j += N) body(j, N);
  if (j < width) body(j, width - j);
}

// The first n elements, zeros behind; reads no further.
template <class D, typename T = hn::TFromD<D>> HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* from, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, from);
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  std::copy_n(from, n, buffer);
  return hn::Load(d, buffer);
}

template <class D, class V, typename T = hn::TFromD<D>> HWY_INLINE void StoreFirst(V x, D d, T* to, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(x, d, to);
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(x, d, buffer);
  std::copy_n(buffer, n, to);
}

// The vector with the lanes from n on set to zero.
template <class D, class V = hn::Vec<D>> HWY_INLINE V OnlyFirst(D d, V x, int64_t n) {
  return n < static_cast<int64_t>(hn::Lanes(d)) ? hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), x) : x;
}

// The sum of the lanes, in float64.
template <class D, class V> HWY_INLINE double Total(D d, V x) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, x))); }

// Calls body(row) for every row; a task has `per_task` neighbouring ones.
template <class Body> void ForRows(int64_t rows, int64_t per_task, Parallel& parallel, const Body& body) {
  parallel.run((rows + per_task - 1) / per_task, [&](int64_t task, int) HWY_ATTR {
    for (int64_t row = task * per_task; row < std::min(rows, (task + 1) * per_task); ++row) body(row);
  });
}

// Rows are handed out in chunks that depend on their number only. Chunk c calls rows(first, last, sums), which adds to its own
// `columns` sums; these are added up in the order of the chunks.
template <typename T, class Rows> void SumOverRows(int64_t rows, int64_t columns, T* total, Parallel& parallel, const Rows& body) {
  constexpr int64_t kMostChunks = 64, kLeastRows = 16;
  const int64_t chunk = std::max(kLeastRows, (rows + kMostChunks - 1) / kMostChunks), chunks = (rows + chunk - 1) / chunk;
  const int64_t stride = (columns + 31) / 32 * 32;
  Carver count(nullptr);
  count.take<T>(chunks * stride);
  T* sums = Carver(Workspace::get(count.used())).take<T>(chunks * stride);
  parallel.run(chunks, [&](int64_t c, int) HWY_ATTR {
    std::fill_n(sums + c * stride, columns, T{0});
    body(c * chunk, std::min(rows, (c + 1) * chunk), sums + c * stride);
  });
  std::fill_n(total, columns, T{0});
  const hn::ScalableTag<T> d;
  for (int64_t c = 0; c < chunks; ++c)
    ForVectors(d, columns, [&](int64_t j, int64_t n) HWY_ATTR {
      StoreFirst(hn::Add(LoadFirst(d, total + j, n), LoadFirst(d, sums + c * stride + j, n)), d, total + j, n);
    });
  Workspace::release_large();
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
