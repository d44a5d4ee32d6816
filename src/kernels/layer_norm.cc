#include "hinge/kernels/layer_norm.h"

#include <cmath>
#include <vector>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kRowsPerTask = 32;

template <typename T> HWY_INLINE T Mean(const T* HWY_RESTRICT x, int64_t width) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR { sum = hn::Add(sum, LoadFirst(d, x + j, n)); });
  return hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<T>(width);
}

// Mean and 1 / sqrt(variance + eps), the variance by a second pass: no cancellation.
template <typename T> HWY_INLINE void Moments(const T* HWY_RESTRICT x, int64_t width, double eps, T& mean, T& rstd) {
  const hn::ScalableTag<T> d;
  mean = Mean(x, width);
  const auto m = hn::Set(d, mean);
  auto squares = hn::Zero(d);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
    auto from_mean = hn::Sub(LoadFirst(d, x + j, n), m);
    if (n < static_cast<int64_t>(hn::Lanes(d))) from_mean = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), from_mean);
    squares = hn::MulAdd(from_mean, from_mean, squares);
  });
  const double variance = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, squares))) / static_cast<double>(width);
  rstd = static_cast<T>(1 / std::sqrt(variance + eps));
}

// Rows of a packed array lie apart, and the processor does not fetch such ahead by itself.
template <typename T> HWY_INLINE void FetchAhead(const LayerNormShape& shape, const RowsView<const T>& x, int64_t row) {
  constexpr int64_t kAhead = 4, kLine = 64 / sizeof(T);
  const int64_t width = shape.groups * shape.width;
  if (x.stride == width || row + kAhead >= shape.rows) return;
  for (int64_t j = 0; j < width; j += kLine) hwy::Prefetch(x.data + (row + kAhead) * x.stride + j);
}

template <typename T> void Forward(const LayerNormShape& shape, const LayerNormForward<T>& io, Parallel& parallel) {
  const int64_t tasks = (shape.rows + kRowsPerTask - 1) / kRowsPerTask;
  parallel.run(tasks, [&](int64_t task, int) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = task * kRowsPerTask; row < std::min(shape.rows, (task + 1) * kRowsPerTask); ++row) {
      FetchAhead(shape, io.x, row);
      for (int64_t group = 0; group < shape.groups; ++group) {
        const T* x = io.x.data + row * io.x.stride + group * shape.width;
        T* y = io.y.data + row * io.y.stride + group * shape.width;
        T mean, rstd;
        Moments(x, shape.width, shape.eps, mean, rstd);
        if (io.mean) {
          io.mean[row * shape.groups + group] = mean;
          io.rstd[row * shape.groups + group] = rstd;
        }
        const auto m = hn::Set(d, mean), r = hn::Set(d, rstd);
        ForVectors(d, shape.width, [&](int64_t j, int64_t n) HWY_ATTR {
          const auto normal = hn::Mul(hn::Sub(LoadFirst(d, x + j, n), m), r);
          StoreFirst(hn::MulAdd(normal, LoadFirst(d, io.weight + j, n), LoadFirst(d, io.bias + j, n)), d, y + j, n);
        });
      }
    }
  });
}

template <typename T> void Backward(const LayerNormShape& shape, const LayerNormBackward<T>& io, Parallel& parallel) {
  const int64_t width = shape.width;
  std::vector<T> totals(static_cast<size_t>(2 * width));
  SumOverRows(shape.rows, 2 * width, totals.data(), parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    T *grad_weight = sums, *grad_bias = sums + width;
    for (int64_t row = first; row < last; ++row) {
      FetchAhead(shape, io.x, row);
      FetchAhead(shape, io.grad_y, row);
      for (int64_t group = 0; group < shape.groups; ++group) {
        const int64_t at = group * width, stat = row * shape.groups + group;
        const T *grad_y = io.grad_y.data + row * io.grad_y.stride + at, *x = io.x.data + row * io.x.stride + at;
        const T* skip = io.grad_skip.data ? io.grad_skip.data + row * io.grad_skip.stride + at : nullptr;
        T* grad_x = io.grad_x.data + row * io.grad_x.stride + at;
        const auto m = hn::Set(d, io.mean[stat]), r = hn::Set(d, io.rstd[stat]);
        auto sum_g = hn::Zero(d), sum_gx = hn::Zero(d);
        ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
          const auto gy = LoadFirst(d, grad_y + j, n), normal = hn::Mul(hn::Sub(LoadFirst(d, x + j, n), m), r);
          const auto g = hn::Mul(gy, LoadFirst(d, io.weight + j, n));
          sum_g = hn::Add(sum_g, g);
          sum_gx = hn::MulAdd(g, normal, sum_gx);
          StoreFirst(hn::MulAdd(gy, normal, LoadFirst(d, grad_weight + j, n)), d, grad_weight + j, n);
          StoreFirst(hn::Add(gy, LoadFirst(d, grad_bias + j, n)), d, grad_bias + j, n);
        });
        const T inverse = T{1} / static_cast<T>(width);
        const auto mean_g = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum_g)) * inverse);
        const auto mean_gx = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum_gx)) * inverse);
        ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
          const auto normal = hn::Mul(hn::Sub(LoadFirst(d, x + j, n), m), r);
          const auto g = hn::Mul(LoadFirst(d, grad_y + j, n), LoadFirst(d, io.weight + j, n));
          auto dx = hn::Mul(r, hn::NegMulAdd(normal, mean_gx, hn::Sub(g, mean_g)));
          if (skip) dx = hn::Add(dx, LoadFirst(d, skip + j, n));
          StoreFirst(dx, d, grad_x + j, n);
        });
      }
    }
  });
  std::copy_n(totals.data(), width, io.grad_weight);
  std::copy_n(totals.data() + width, width, io.grad_bias);
}

void ForwardFloat(const LayerNormShape& shape, const LayerNormForward<float>& io, Parallel& parallel) { Forward(shape, io, parallel); }
void ForwardDouble(const LayerNormShape& shape, const LayerNormForward<double>& io, Parallel& parallel) { Forward(shape, io, parallel); }
void BackwardFloat(const LayerNormShape& shape, const LayerNormBackward<float>& io, Parallel& parallel) { Backward(shape, io, parallel); }
void BackwardDouble(const LayerNormShape& shape, const LayerNormBackward<double>& io, Parallel& parallel) { Backward(shape, io, parallel); }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(ForwardFloat);
HWY_EXPORT(ForwardDouble);
HWY_EXPORT(BackwardFloat);
HWY_EXPORT(BackwardDouble);

void layer_norm_forward(const LayerNormShape& shape, const LayerNormForward<float>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(ForwardFloat)(shape, io, parallel);
}
void layer_norm_forward(const LayerNormShape& shape, const LayerNormForward<double>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(ForwardDouble)(shape, io, parallel);
}
void layer_norm_backward(const LayerNormShape& shape, const LayerNormBackward<float>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(BackwardFloat)(shape, io, parallel);
}
void layer_norm_backward(const LayerNormShape& shape, const LayerNormBackward<double>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(BackwardDouble)(shape, io, parallel);
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
