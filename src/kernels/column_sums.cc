#include "hinge/kernels/column_sums.h"

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/column_sums.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
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

void SumsFloat(const float* x, int64_t rows, int64_t stride, int64_t width, float* sums, Parallel& parallel) {
  ColumnSums(x, rows, stride, width, sums, parallel);
}
void SumsDouble(const double* x, int64_t rows, int64_t stride, int64_t width, double* sums, Parallel& parallel) {
  ColumnSums(x, rows, stride, width, sums, parallel);
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(SumsFloat);
HWY_EXPORT(SumsDouble);

void column_sums(const float* x, int64_t rows, int64_t stride, int64_t width, float* sums, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(SumsFloat)(x, rows, stride, width, sums, parallel);
}
void column_sums(const double* x, int64_t rows, int64_t stride, int64_t width, double* sums, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(SumsDouble)(x, rows, stride, width, sums, parallel);
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
