#include "hinge/kernels/hidden_activation.h"

#define HWY_TARGET_INCLUDE "kernels/hidden_activation.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/dropout_rows-inl.h"
#include "kernels/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- point-wise activation

template <class H, typename T> void PointwiseForward(const HiddenActivationForward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(io.dropout);
  ForRows(io.rows, /*per_task=*/16, parallel, [&](int64_t row) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const T* u = io.u + row * io.units;
    T* hidden = io.hidden + row * io.units;
    dropout.ForVectorsOf(d, row, io.units, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
      StoreFirst(hn::Mul(H::value(d, LoadFirst(d, u + j, n)), factors), d, hidden + j, n);
    });
  });
}

template <class H, typename T> void PointwiseBackward(const HiddenActivationBackward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(io.dropout);
  SumOverRows(io.rows, io.units, io.grad_bias, parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * io.units;
      dropout.ForVectorsOf(d, row, io.units, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
        hn::Vec<decltype(d)> slope;
        const auto value = H::value_and_slope(d, LoadFirst(d, io.kept + at + j, n), slope);
        if (io.hidden) StoreFirst(hn::Mul(value, factors), d, io.hidden + at + j, n);
        const auto du = hn::Mul(slope, hn::Mul(factors, LoadFirst(d, io.grad + at + j, n)));
        StoreFirst(du, d, io.du + at + j, n);
        StoreFirst(hn::Add(du, LoadFirst(d, sums + j, n)), d, sums + j, n);
      });
    }
  });
}

// Where a hidden unit is positive, neither relu nor dropout took it.
template <typename T> void ReluBackward(const HiddenActivationBackward<T>& io, Parallel& parallel) {
  SumOverRows(io.rows, io.units, io.grad_bias, parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(dropout_scale(io.dropout.probability)));
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * io.units;
      ForVectors(d, io.units, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto on = hn::Gt(LoadFirst(d, io.kept + at + j, n), hn::Zero(d));
        const auto du = hn::IfThenElseZero(on, hn::Mul(scale, LoadFirst(d, io.grad + at + j, n)));
        StoreFirst(du, d, io.du + at + j, n);
        StoreFirst(hn::Add(du, LoadFirst(d, sums + j, n)), d, sums + j, n);
      });
      if (io.hidden && io.hidden != io.kept) std::copy_n(io.kept + at, io.units, io.hidden + at);
    }
  });
}

// ---- softmax

template <typename T> void SoftmaxForward(const HiddenActivationForward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(io.dropout);
  ForRows(io.rows, /*per_task=*/16, parallel, [&](int64_t row) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const T* u = io.u + row * io.units;
    T *p = io.softmax + row * io.units, *hidden = io.hidden + row * io.units;
    const auto inverse = hn::Set(d, static_cast<T>(1 / ExpAndSum(u, io.units, LargestOf(u, io.units), p)));
    dropout.ForVectorsOf(d, row, io.units, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
      const auto value = hn::Mul(LoadFirst(d, p + j, n), inverse);
      if (hidden != p) StoreFirst(value, d, p + j, n);
      StoreFirst(hn::Mul(value, factors), d, hidden + j, n);
    });
  });
}

// With g = drop(grad):  du = p * (g - sum(p * g)).
template <typename T> void SoftmaxBackward(const HiddenActivationBackward<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(io.dropout);
  SumOverRows(io.rows, io.units, io.grad_bias, parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = first; row < last; ++row) {
      const T *p = io.kept + row * io.units, *grad = io.grad + row * io.units;
      T *du = io.du + row * io.units, *hidden = io.hidden ? io.hidden + row * io.units : nullptr;
      auto sum = hn::Zero(d);
      dropout.ForVectorsOf(d, row, io.units, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
        const auto value = LoadFirst(d, p + j, n), g = hn::Mul(factors, LoadFirst(d, grad + j, n));
        sum = hn::MulAdd(value, g, sum);
        StoreFirst(g, d, du + j, n);
        if (hidden) StoreFirst(hn::Mul(value, factors), d, hidden + j, n);
      });
      const auto mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)));
      ForVectors(d, io.units, [&](int64_t j, int64_t n) HWY_ATTR {
        const auto value = hn::Mul(LoadFirst(d, p + j, n), hn::Sub(LoadFirst(d, du + j, n), mean));
        StoreFirst(value, d, du + j, n);
        StoreFirst(hn::Add(value, LoadFirst(d, sums + j, n)), d, sums + j, n);
      });
    }
  });
}

template <typename T> void Forward(Activation activation, const HiddenActivationForward<T>& io, Parallel& parallel) {
  switch (activation) {
#define HINGE_CASE(name, cls) \
  case Activation::name: return PointwiseForward<cls>(io, parallel);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_CASE)
#undef HINGE_CASE
    case Activation::softmax: return SoftmaxForward(io, parallel);
  }
}

template <typename T> void Backward(Activation activation, const HiddenActivationBackward<T>& io, Parallel& parallel) {
  if (activation == Activation::relu) return ReluBackward(io, parallel);
  switch (activation) {
#define HINGE_CASE(name, cls) \
  case Activation::name: return PointwiseBackward<cls>(io, parallel);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_CASE)
#undef HINGE_CASE
    case Activation::softmax: return SoftmaxBackward(io, parallel);
  }
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

template <typename T> void hidden_activation_forward(Activation activation, const HiddenActivationForward<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Forward, T)(activation, io, parallel);
}
template <typename T> void hidden_activation_backward(Activation activation, const HiddenActivationBackward<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Backward, T)(activation, io, parallel);
}

HINGE_INSTANTIATE(hidden_activation_forward);
HINGE_INSTANTIATE(hidden_activation_backward);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
