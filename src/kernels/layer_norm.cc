#include "hinge/kernels/layer_norm.h"

#include <vector>

#define HWY_TARGET_INCLUDE "kernels/layer_norm.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "hwy/cache_control.h"
#include "kernels/norm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> HWY_INLINE T Mean(const T* HWY_RESTRICT x, int64_t width) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR { sum = hn::Add(sum, LoadFirst(d, x + j, n)); });
  return hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<T>(width);
}

// Rows of a packed array lie apart, and the processor does not fetch such ahead by itself.
template <typename T> HWY_INLINE void FetchAhead(const LayerNormShape& shape, const RowsView<const T>& x, int64_t row) {
  constexpr int64_t kAhead = 4, kLine = 64 / sizeof(T);
  const int64_t width = shape.groups * shape.width;
  if (x.stride == width || row + kAhead >= shape.rows) return;
  for (int64_t j = 0; j < width; j += kLine) hwy::Prefetch(x.data + (row + kAhead) * x.stride + j);
}

template <typename T> void Forward(const LayerNormShape& shape, const LayerNormForward<T>& io, Parallel& parallel) {
  ForRows(shape.rows, /*per_task=*/32, parallel, [&](int64_t row) HWY_ATTR {
    FetchAhead(shape, io.x, row);
    for (int64_t group = 0; group < shape.groups; ++group) {
      const T* x = io.x.data + row * io.x.stride + group * shape.width;
      T* y = io.y.data + row * io.y.stride + group * shape.width;
      const T mean = Mean(x, shape.width), rstd = InverseDeviation(x, mean, shape.width, shape.eps);
      if (io.mean) {
        io.mean[row * shape.groups + group] = mean;
        io.rstd[row * shape.groups + group] = rstd;
      }
      NormRow(x, mean, rstd, io.weight, io.bias, shape.width, y);
    }
  });
}

template <typename T> void Backward(const LayerNormShape& shape, const LayerNormBackward<T>& io, Parallel& parallel) {
  const int64_t width = shape.width;
  const T inverse = T{1} / static_cast<T>(width);
  std::vector<T> totals(static_cast<size_t>(2 * width));
  SumOverRows(shape.rows, 2 * width, totals.data(), parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto mean_of = [&](auto sum) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, sum)) * inverse; };
    for (int64_t row = first; row < last; ++row) {
      FetchAhead(shape, io.x, row);
      FetchAhead(shape, io.grad_y, row);
      for (int64_t group = 0; group < shape.groups; ++group) {
        const int64_t at = group * width, stat = row * shape.groups + group;
        const T *grad_y = io.grad_y.data + row * io.grad_y.stride + at, *x = io.x.data + row * io.x.stride + at;
        const T* skip = io.grad_skip.data ? io.grad_skip.data + row * io.grad_skip.stride + at : nullptr;
        T* grad_x = io.grad_x.data + row * io.grad_x.stride + at;
        const auto store = [&](const auto& gradient) HWY_ATTR {
          ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
            auto dx = gradient(j, n);
            if (skip) dx = hn::Add(dx, LoadFirst(d, skip + j, n));
            StoreFirst(dx, d, grad_x + j, n);
          });
        };
        NormRowBackward(grad_y, x, io.weight, io.mean[stat], io.rstd[stat], width, sums, sums + width, mean_of, store);
      }
    }
  });
  std::copy_n(totals.data(), width, io.grad_weight);
  std::copy_n(totals.data() + width, width, io.grad_bias);
}

HINGE_FLOAT_AND_DOUBLE(Forward);
HINGE_FLOAT_AND_DOUBLE(Backward);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Forward);
HINGE_EXPORT(Backward);

template <typename T> void layer_norm_forward(const LayerNormShape& shape, const LayerNormForward<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Forward, T)(shape, io, parallel);
}
template <typename T> void layer_norm_backward(const LayerNormShape& shape, const LayerNormBackward<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Backward, T)(shape, io, parallel);
}

HINGE_INSTANTIATE(layer_norm_forward);
HINGE_INSTANTIATE(layer_norm_backward);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
