#include "hinge/kernels/column_sums.h"

#define HWY_TARGET_INCLUDE "kernels/column_sums.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> void ColumnSums(const T* x, int64_t rows, int64_t stride, int64_t width, T* sums, Parallel& parallel) {
  SumOverRows(rows, width, sums, parallel, [&](int64_t first, int64_t last, T* own) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = first; row < last; ++row)
      ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
        StoreFirst(hn::Add(LoadFirst(d, own + j, n), LoadFirst(d, x + row * stride + j, n)), d, own + j, n);
      });
  });
}

HINGE_FLOAT_AND_DOUBLE(ColumnSums);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(ColumnSums);

template <typename T> void column_sums(const T* x, int64_t rows, int64_t stride, int64_t width, T* sums, Parallel& parallel) {
  HINGE_DISPATCH(ColumnSums, T)(x, rows, stride, width, sums, parallel);
}

HINGE_INSTANTIATE(column_sums);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
