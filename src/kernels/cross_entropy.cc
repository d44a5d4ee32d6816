#include "hinge/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#define HWY_TARGET_INCLUDE "kernels/cross_entropy.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/activations-inl.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loss and gradient as if no class were a target; the caller takes the targets' shares off both.
template <typename T> double SoftmaxRow(const T* HWY_RESTRICT x, int64_t classes, T* HWY_RESTRICT grad) {
  const hn::ScalableTag<T> d;
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t c = 0; c < classes; ++c) largest = std::max(largest, x[c]);
  const auto top = hn::Set(d, largest);
  double sum = 0;
  ForVectors(d, classes, [&](int64_t j, int64_t n) HWY_ATTR {
    const auto e = OnlyFirst(d, ExpNotPositive(d, hn::Sub(LoadFirst(d, x + j, n), top)), n);
    if (grad) StoreFirst(e, d, grad + j, n);
    sum += Total(d, e);
  });
  if (grad) {
    const auto inverse = hn::Set(d, static_cast<T>(1 / sum));
    ForVectors(d, classes, [&](int64_t j, int64_t n) HWY_ATTR { StoreFirst(hn::Mul(LoadFirst(d, grad + j, n), inverse), d, grad + j, n); });
  }
  return static_cast<double>(largest) + std::log(sum);
}

template <typename T> double SigmoidRow(const T* HWY_RESTRICT x, int64_t classes, T* HWY_RESTRICT grad) {
  const hn::ScalableTag<T> d;
  double sum = 0;
  ForVectors(d, classes, [&](int64_t j, int64_t n) HWY_ATTR {
    hn::Vec<decltype(d)> slope;
    const auto loss = OnlyFirst(d, Softplus::value_and_slope(d, LoadFirst(d, x + j, n), slope), n);
    if (grad) StoreFirst(slope, d, grad + j, n);
    sum += Total(d, loss);
  });
  return sum;
}

template <typename T> void Rows(CrossEntropy kind, const CrossEntropyRows<T>& io, Parallel& parallel) {
  parallel.run(io.rows, [&](int64_t row, int) HWY_ATTR {
    const T* x = io.logits + row * io.classes;
    T* grad = io.grad_logits ? io.grad_logits + row * io.classes : nullptr;
    double loss = kind == CrossEntropy::softmax ? SoftmaxRow(x, io.classes, grad) : SigmoidRow(x, io.classes, grad);
    const auto take_off = [&](int64_t label, double share) {
      loss -= share * static_cast<double>(x[label]);
      if (grad) grad[label] -= static_cast<T>(share);
    };
    take_off(io.labels[row], io.second ? io.lambda : 1);
    if (io.second) take_off(io.second[row], 1 - io.lambda);
    io.losses[row] = static_cast<T>(loss);
  });
}

HINGE_FLOAT_AND_DOUBLE(Rows);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Rows);

template <typename T> void cross_entropy(CrossEntropy kind, const CrossEntropyRows<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Rows, T)(kind, io, parallel);
}

HINGE_INSTANTIATE(cross_entropy);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
