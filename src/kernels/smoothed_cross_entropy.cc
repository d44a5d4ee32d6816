#include "hinge/kernels/smoothed_cross_entropy.h"

#include <cmath>

#define HWY_TARGET_INCLUDE "kernels/smoothed_cross_entropy.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With lse = log sum exp x:  loss = lse - (1 - s) x_label - s mean(x),  gradient = softmax(x) - s / classes - (1 - s) [label].
template <typename T> void Losses(const SmoothedCrossEntropy<T>& io, Parallel& parallel) {
  const auto classes = static_cast<double>(io.classes);
  ForRows(io.rows, /*per_task=*/4, parallel, [&](int64_t row) HWY_ATTR {
    const hn::ScalableTag<T> d;
    T* x = io.logits + row * io.classes;
    const int64_t label = io.labels[row];
    const T largest = LargestOf(x, io.classes), at_label = x[label];
    const double mean = io.smoothing > 0 ? SumOf(x, io.classes) / classes : 0;
    const double sum = ExpAndSum(x, io.classes, largest, io.gradient ? x : nullptr);
    const double lse = static_cast<double>(largest) + std::log(sum);
    io.nll[row] = lse - static_cast<double>(at_label);
    io.losses[row] = lse - (1 - io.smoothing) * static_cast<double>(at_label) - io.smoothing * mean;
    io.right[row] = at_label == largest;
    if (!io.gradient) return;
    const auto factor = hn::Set(d, static_cast<T>(io.grad_scale / sum));
    const auto even = hn::Set(d, static_cast<T>(-io.grad_scale * io.smoothing / classes));
    ForVectors(d, io.classes,
               [&](int64_t j, int64_t n) HWY_ATTR { StoreFirst(hn::MulAdd(LoadFirst(d, x + j, n), factor, even), d, x + j, n); });
    x[label] -= static_cast<T>(io.grad_scale * (1 - io.smoothing));
  });
}

HINGE_FLOAT_AND_DOUBLE(Losses);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Losses);

template <typename T> void smoothed_cross_entropy(const SmoothedCrossEntropy<T>& io, Parallel& parallel) {
  HINGE_DISPATCH(Losses, T)(io, parallel);
}

HINGE_INSTANTIATE(smoothed_cross_entropy);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
