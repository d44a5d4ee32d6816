#include "hinge/kernels/feed_forward.h"

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/feed_forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/activations-inl.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kElementsPerTask = 16384;

template <class H, typename T> void ActivateForward(const T* u, int64_t n, T* a, Parallel& parallel) {
  parallel.run((n + kElementsPerTask - 1) / kElementsPerTask, [&](int64_t task, int) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const int64_t first = task * kElementsPerTask;
    ForVectors(d, std::min(kElementsPerTask, n - first), [&](int64_t j, int64_t lanes) HWY_ATTR {
      StoreFirst(H::value(d, LoadFirst(d, u + first + j, lanes)), d, a + first + j, lanes);
    });
  });
}

template <class H, typename T> void ActivateBackwardRows(const ActivateBackward<T>& io, Parallel& parallel) {
  SumOverRows(io.rows, io.width, io.grad_bias, parallel, [&](int64_t first, int64_t last, T* sums) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * io.width;
      ForVectors(d, io.width, [&](int64_t j, int64_t n) HWY_ATTR {
        hn::Vec<decltype(d)> slope;
        StoreFirst(H::value_and_slope(d, LoadFirst(d, io.u + at + j, n), slope), d, io.a + at + j, n);
        const auto du = hn::Mul(slope, LoadFirst(d, io.da + at + j, n));
        StoreFirst(du, d, io.du + at + j, n);
        StoreFirst(hn::Add(du, LoadFirst(d, sums + j, n)), d, sums + j, n);
      });
    }
  });
}

template <typename T> void ColumnSums(const T* x, int64_t rows, int64_t stride, int64_t width, T* sums, Parallel& parallel) {
  SumOverRows(rows, width, sums, parallel, [&](int64_t first, int64_t last, T* own) HWY_ATTR {
    const hn::ScalableTag<T> d;
    for (int64_t row = first; row < last; ++row)
      ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR {
        StoreFirst(hn::Add(LoadFirst(d, own + j, n), LoadFirst(d, x + row * stride + j, n)), d, own + j, n);
      });
  });
}

#define HINGE_WITH_ACTIVATION(h, CALL)        \
  switch (h) {                                \
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(CALL) \
    case Activation::softmax: break;          \
  }

template <typename T> void ForwardNamed(Activation h, const T* u, int64_t n, T* a, Parallel& parallel) {
#define HINGE_CASE(name, cls) \
  case Activation::name: return ActivateForward<cls>(u, n, a, parallel);
  HINGE_WITH_ACTIVATION(h, HINGE_CASE)
#undef HINGE_CASE
}

template <typename T> void BackwardNamed(Activation h, const ActivateBackward<T>& io, Parallel& parallel) {
#define HINGE_CASE(name, cls) \
  case Activation::name: return ActivateBackwardRows<cls>(io, parallel);
  HINGE_WITH_ACTIVATION(h, HINGE_CASE)
#undef HINGE_CASE
}
#undef HINGE_WITH_ACTIVATION

void ForwardFloat(Activation h, const float* u, int64_t n, float* a, Parallel& parallel) { ForwardNamed(h, u, n, a, parallel); }
void ForwardDouble(Activation h, const double* u, int64_t n, double* a, Parallel& parallel) { ForwardNamed(h, u, n, a, parallel); }
void BackwardFloat(Activation h, const ActivateBackward<float>& io, Parallel& parallel) { BackwardNamed(h, io, parallel); }
void BackwardDouble(Activation h, const ActivateBackward<double>& io, Parallel& parallel) { BackwardNamed(h, io, parallel); }
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

HWY_EXPORT(ForwardFloat);
HWY_EXPORT(ForwardDouble);
HWY_EXPORT(BackwardFloat);
HWY_EXPORT(BackwardDouble);
HWY_EXPORT(SumsFloat);
HWY_EXPORT(SumsDouble);

void activate_forward(Activation h, const float* u, int64_t n, float* a, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(ForwardFloat)(h, u, n, a, parallel);
}
void activate_forward(Activation h, const double* u, int64_t n, double* a, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(ForwardDouble)(h, u, n, a, parallel);
}
void activate_backward(Activation h, const ActivateBackward<float>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(BackwardFloat)(h, io, parallel);
}
void activate_backward(Activation h, const ActivateBackward<double>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(BackwardDouble)(h, io, parallel);
}
void column_sums(const float* x, int64_t rows, int64_t stride, int64_t width, float* sums, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(SumsFloat)(x, rows, stride, width, sums, parallel);
}
void column_sums(const double* x, int64_t rows, int64_t stride, int64_t width, double* sums, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(SumsDouble)(x, rows, stride, width, sums, parallel);
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
