#include "hinge/kernels/residual_norm.h"

#include <cmath>
#include <vector>

#define HWY_TARGET_INCLUDE "kernels/residual_norm.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/dropout_rows-inl.h"
#include "kernels/norm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> void Forward(const ResidualNormShape& shape, const ResidualNormForward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(shape.dropout);
  const int64_t width = shape.width;
  ForRows(shape.rows, /*per_task=*/32, parallel, [&](int64_t row) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const T *residual = io.residual + row * width, *x = io.x + row * width;
    T* y = io.y + row * width;
    auto sum = hn::Zero(d);
    dropout.ForVectorsOf(d, row, width, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
      const auto value = hn::MulAdd(LoadFirst(d, x + j, n), factors, LoadFirst(d, residual + j, n));
      sum = hn::Add(sum, value);
      StoreFirst(value, d, y + j, n);
    });
    const T mean = static_cast<T>(Total(d, sum) / static_cast<double>(width)), rstd = InverseDeviation(y, mean, width, shape.eps);
    if (io.mean) io.mean[row] = mean, io.rstd[row] = rstd;
    NormRow(y, mean, rstd, io.weight, io.bias, width, io.z + row * width);
  });
}

template <typename T> void Backward(const ResidualNormShape& shape, const ResidualNormBackward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(shape.dropout);
  const int64_t width = shape.width;
  std::vector<T> totals(static_cast<size_t>(2 * width));
  SumOverRows(shape.rows, 2 * width, totals.data(), parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto mean_of = [&](auto sum) HWY_ATTR { return static_cast<T>(Total(d, sum) / static_cast<double>(width)); };
    for (int64_t row = first; row < last; ++row) {
      const T* grad_y = io.grad_y ? io.grad_y + row * width : nullptr;
      T *grad_residual = io.grad_residual + row * width, *grad_x = io.grad_x ? io.grad_x + row * width : nullptr;
      const auto store = [&](const auto& gradient) HWY_ATTR {
        const auto of_residual = [&](int64_t j, int64_t n) HWY_ATTR {
          auto dy = gradient(j, n);
          if (grad_y) dy = hn::Add(dy, LoadFirst(d, grad_y + j, n));
          StoreFirst(dy, d, grad_residual + j, n);
          return dy;
        };
        if (grad_x)
          dropout.ForVectorsOf(d, row, width, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
            StoreFirst(hn::Mul(of_residual(j, n), factors), d, grad_x + j, n);
          });
        else
          ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR { of_residual(j, n); });
      };
      NormRowBackward(io.grad_z + row * width, io.y + row * width, io.weight, io.mean[row], io.rstd[row], width, sums, sums + width,
                      mean_of, store);
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
  ForRows(io.rows, /*per_task=*/32, parallel, [&](int64_t row) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const T* x = io.x + row * io.width;
    const auto r = hn::Set(d, InverseRms(x, io.width, io.eps));
    ForVectors(d, io.width, [&](int64_t j, int64_t n) HWY_ATTR {
      StoreFirst(hn::Mul(hn::Mul(LoadFirst(d, x + j, n), r), LoadFirst(d, io.weight + j, n)), d, io.y + row * io.width + j, n);
    });
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

HINGE_FLOAT_AND_DOUBLE(Forward);
HINGE_FLOAT_AND_DOUBLE(Backward);
HINGE_FLOAT_AND_DOUBLE(RmsForward);
HINGE_FLOAT_AND_DOUBLE(RmsBackward);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Forward);
HINGE_EXPORT(Backward);
HINGE_EXPORT(RmsForward);
HINGE_EXPORT(RmsBackward);

template <typename T> void residual_norm_forward(const ResidualNormShape& shape, const ResidualNormForward<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Forward, T)(shape, io, parallel);
}
template <typename T> void residual_norm_backward(const ResidualNormShape& shape, const ResidualNormBackward<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Backward, T)(shape, io, parallel);
}
template <typename T> void rms_norm_forward(const RmsNorm<T>& io, Parallel& parallel) { HINGE_DISPATCH(RmsForward, T)(io, parallel); }
template <typename T> void rms_norm_backward(const RmsNorm<T>& io, Parallel& parallel) { HINGE_DISPATCH(RmsBackward, T)(io, parallel); }

HINGE_INSTANTIATE(residual_norm_forward);
HINGE_INSTANTIATE(residual_norm_backward);
HINGE_INSTANTIATE(rms_norm_forward);
HINGE_INSTANTIATE(rms_norm_backward);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
