#include "hinge/kernels/residual_norm.h"

#include <cmath>
#include <vector>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/dropout_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kRowsPerTask = 32;

// The vector with the lanes from n on set to zero.
template <class D, class V = hn::Vec<D>> HWY_INLINE V OnlyFirst(D d, V x, int64_t n) {
  return n < static_cast<int64_t>(hn::Lanes(d)) ? hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), x) : x;
}

template <class D, class V> HWY_INLINE double Total(D d, V x) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, x))); }

template <typename T> void Forward(const ResidualNormShape& shape, const ResidualNormForward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(shape.dropout);
  const int64_t width = shape.width;
  parallel.run((shape.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = task * kRowsPerTask; row < std::min(shape.rows, (task + 1) * kRowsPerTask); ++row) {
      const T *residual = io.residual + row * width, *x = io.x + row * width;
      T *y = io.y + row * width, *z = io.z + row * width;
      auto sum = hn::Zero(d);
      dropout.ForVectorsOf(d, row, width, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
        const auto value = hn::MulAdd(LoadFirst(d, x + j, n), factors, LoadFirst(d, residual + j, n));
        sum = hn::Add(sum, value);
        StoreFirst(value, d, y + j, n);
      });
      // The variance by a second pass: no cancellation.
      const T mean = static_cast<T>(Total(d, sum) / static_cast<double>(width));
      const auto m = hn::Set(d, mean);
      auto squares = hn::Zero(d);
      ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto from_mean = OnlyFirst(d, hn::Sub(LoadFirst(d, y + j, n), m), n);
        squares = hn::MulAdd(from_mean, from_mean, squares);
      });
      const T rstd = static_cast<T>(1 / std::sqrt(Total(d, squares) / static_cast<double>(width) + shape.eps));
      if (io.mean) io.mean[row] = mean, io.rstd[row] = rstd;
      const auto r = hn::Set(d, rstd);
      ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto normal = hn::Mul(hn::Sub(LoadFirst(d, y + j, n), m), r);
        StoreFirst(hn::MulAdd(normal, LoadFirst(d, io.weight + j, n), LoadFirst(d, io.bias + j, n)), d, z + j, n);
      });
    }
  });
}

template <typename T> void Backward(const ResidualNormShape& shape, const ResidualNormBackward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(shape.dropout);
  const int64_t width = shape.width;
  std::vector<T> totals(static_cast<size_t>(2 * width));
  SumOverRows(shape.rows, 2 * width, totals.data(), parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    T *grad_weight = sums, *grad_bias = sums + width;
    for (int64_t row = first; row < last; ++row) {
      const T *grad_z = io.grad_z + row * width, *y = io.y + row * width;
      const T* grad_y = io.grad_y ? io.grad_y + row * width : nullptr;
      const auto m = hn::Set(d, io.mean[row]), r = hn::Set(d, io.rstd[row]);
      auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
      ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto gz = LoadFirst(d, grad_z + j, n), normal = hn::Mul(hn::Sub(LoadFirst(d, y + j, n), m), r);
        const auto g = hn::Mul(gz, LoadFirst(d, io.weight + j, n));
        sum_g = hn::Add(sum_g, g);
        sum_gn = hn::MulAdd(g, normal, sum_gn);
        StoreFirst(hn::MulAdd(gz, normal, LoadFirst(d, grad_weight + j, n)), d, grad_weight + j, n);
        StoreFirst(hn::Add(gz, LoadFirst(d, grad_bias + j, n)), d, grad_bias + j, n);
      });
      const auto mean_g = hn::Set(d, static_cast<T>(Total(d, sum_g) / static_cast<double>(width)));
      const auto mean_gn = hn::Set(d, static_cast<T>(Total(d, sum_gn) / static_cast<double>(width)));
      T* grad_residual = io.grad_residual + row * width;
      const auto gradient = [&](int64_t j, int64_t n) HWY_ATTR {
        const auto normal = hn::Mul(hn::Sub(LoadFirst(d, y + j, n), m), r);
        const auto g = hn::Mul(LoadFirst(d, grad_z + j, n), LoadFirst(d, io.weight + j, n));
        auto dy = hn::Mul(r, hn::NegMulAdd(normal, mean_gn, hn::Sub(g, mean_g)));
        if (grad_y) dy = hn::Add(dy, LoadFirst(d, grad_y + j, n));
        StoreFirst(dy, d, grad_residual + j, n);
        return dy;
      };
      if (!io.grad_x) {
        ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR { gradient(j, n); });
        continue;
      }
      T* grad_x = io.grad_x + row * width;
      dropout.ForVectorsOf(d, row, width, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
        StoreFirst(hn::Mul(gradient(j, n), factors), d, grad_x + j, n);
      });
    }
  });
  std::copy_n(totals.data(), width, io.grad_weight);
  std::copy_n(totals.data() + width, width, io.grad_bias);
}

template <typename T> HWY_INLINE T InverseRms(const T* HWY_RESTRICT x, int64_t width, double eps) {
  const hn::ScalableTag<T> d;
  auto squares = hn::Zero(d);
  ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
    const auto v = LoadFirst(d, x + j, n);
    squares = hn::MulAdd(v, v, squares);
  });
  return static_cast<T>(1 / std::sqrt(Total(d, squares) / static_cast<double>(width) + eps));
}

template <typename T> void RmsForward(const RmsNorm<T>& io, Parallel& parallel) {
  parallel.run((io.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = task * kRowsPerTask; row < std::min(io.rows, (task + 1) * kRowsPerTask); ++row) {
      const T* x = io.x + row * io.width;
      const auto r = hn::Set(d, InverseRms(x, io.width, io.eps));
      ForVectors(d, io.width, [&](int64_t j, int64_t n) HWY_ATTR {
        StoreFirst(hn::Mul(hn::Mul(LoadFirst(d, x + j, n), r), LoadFirst(d, io.weight + j, n)), d, io.y + row * io.width + j, n);
      });
    }
  });
}

// With g = grad_y * weight and normal = x * rms:  grad_x = rms * (g - normal * mean(g * normal)).
template <typename T> void RmsBackward(const RmsNorm<T>& io, Parallel& parallel) {
  SumOverRows(io.rows, io.width, io.grad_weight, parallel, [&](int64_t first, int64_t last, T* grad_weight) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = first; row < last; ++row) {
      const T *x = io.x + row * io.width, *grad_y = io.grad_y + row * io.width;
      const auto r = hn::Set(d, InverseRms(x, io.width, io.eps));
      auto sum = hn::Zero(d);
      ForVectors(d, io.width, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto normal = hn::Mul(LoadFirst(d, x + j, n), r), gn = hn::Mul(LoadFirst(d, grad_y + j, n), normal);
        StoreFirst(hn::Add(LoadFirst(d, grad_weight + j, n), gn), d, grad_weight + j, n);
        sum = hn::MulAdd(gn, LoadFirst(d, io.weight + j, n), sum);
      });
      const auto mean = hn::Set(d, static_cast<T>(Total(d, sum) / static_cast<double>(io.width)));
      ForVectors(d, io.width, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto normal = hn::Mul(LoadFirst(d, x + j, n), r), g = hn::Mul(LoadFirst(d, grad_y + j, n), LoadFirst(d, io.weight + j, n));
        StoreFirst(hn::Mul(r, hn::NegMulAdd(normal, mean, g)), d, io.grad_x + row * io.width + j, n);
      });
    }
  });
}

void ForwardFloat(const ResidualNormShape& shape, const ResidualNormForward<float>& io, Parallel& p) { Forward(shape, io, p); }
void ForwardDouble(const ResidualNormShape& shape, const ResidualNormForward<double>& io, Parallel& p) { Forward(shape, io, p); }
void BackwardFloat(const ResidualNormShape& shape, const ResidualNormBackward<float>& io, Parallel& p) { Backward(shape, io, p); }
void BackwardDouble(const ResidualNormShape& shape, const ResidualNormBackward<double>& io, Parallel& p) { Backward(shape, io, p); }
void RmsForwardFloat(const RmsNorm<float>& io, Parallel& p) { RmsForward(io, p); }
void RmsForwardDouble(const RmsNorm<double>& io, Parallel& p) { RmsForward(io, p); }
void RmsBackwardFloat(const RmsNorm<float>& io, Parallel& p) { RmsBackward(io, p); }
void RmsBackwardDouble(const RmsNorm<double>& io, Parallel& p) { RmsBackward(io, p); }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(ForwardFloat);
HWY_EXPORT(ForwardDouble);
HWY_EXPORT(BackwardFloat);
HWY_EXPORT(BackwardDouble);
HWY_EXPORT(RmsForwardFloat);
HWY_EXPORT(RmsForwardDouble);
HWY_EXPORT(RmsBackwardFloat);
HWY_EXPORT(RmsBackwardDouble);

void residual_norm_forward(const ResidualNormShape& shape, const ResidualNormForward<float>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(ForwardFloat)(shape, io, parallel);
}
void residual_norm_forward(const ResidualNormShape& shape, const ResidualNormForward<double>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(ForwardDouble)(shape, io, parallel);
}
void residual_norm_backward(const ResidualNormShape& shape, const ResidualNormBackward<float>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(BackwardFloat)(shape, io, parallel);
}
void residual_norm_backward(const ResidualNormShape& shape, const ResidualNormBackward<double>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(BackwardDouble)(shape, io, parallel);
}
void rms_norm_forward(const RmsNorm<float>& io, Parallel& parallel) { HWY_DYNAMIC_DISPATCH(RmsForwardFloat)(io, parallel); }
void rms_norm_forward(const RmsNorm<double>& io, Parallel& parallel) { HWY_DYNAMIC_DISPATCH(RmsForwardDouble)(io, parallel); }
void rms_norm_backward(const RmsNorm<float>& io, Parallel& parallel) { HWY_DYNAMIC_DISPATCH(RmsBackwardFloat)(io, parallel); }
void rms_norm_backward(const RmsNorm<double>& io, Parallel& parallel) { HWY_DYNAMIC_DISPATCH(RmsBackwardDouble)(io, parallel); }

}  // namespace hinge::kernels
#endif  // HWY_ONCE
