#include "hinge/kernels/smoothed_cross_entropy.h"

#include <cmath>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/smoothed_cross_entropy.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kRowsPerTask = 4;

template <class Body> void ForRows(int64_t rows, Parallel& parallel, const Body& body) {
  parallel.run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) HWY_ATTR {
    for (int64_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row) body(row);
  });
}

// With lse = log sum exp x:  loss = lse - (1 - s) x_label - s mean(x),  gradient = softmax(x) - s / classes - (1 - s) [label].
template <typename T> void Losses(const SmoothedCrossEntropy<T>& io, Parallel& parallel) {
  const auto classes = static_cast<double>(io.classes);
  ForRows(io.rows, parallel, [&](int64_t row) HWY_ATTR {
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

template <typename T> void LogSoftmax(T* logits, int64_t rows, int64_t classes, Parallel& parallel) {
  ForRows(rows, parallel, [&](int64_t row) HWY_ATTR {
    const hn::ScalableTag<T> d;
    T* x = logits + row * classes;
    const T largest = LargestOf(x, classes);
    // Two subtractions: what is close to the largest keeps its digits.
    const auto top = hn::Set(d, largest),
               rest = hn::Set(d, static_cast<T>(std::log(ExpAndSum(x, classes, largest, static_cast<T*>(nullptr)))));
    ForVectors(d, classes,
               [&](int64_t j, int64_t n) HWY_ATTR { StoreFirst(hn::Sub(hn::Sub(LoadFirst(d, x + j, n), top), rest), d, x + j, n); });
  });
}

void LossesFloat(const SmoothedCrossEntropy<float>& io, Parallel& parallel) { Losses(io, parallel); }
void LossesDouble(const SmoothedCrossEntropy<double>& io, Parallel& parallel) { Losses(io, parallel); }
void LogSoftmaxFloat(float* logits, int64_t rows, int64_t classes, Parallel& parallel) { LogSoftmax(logits, rows, classes, parallel); }
void LogSoftmaxDouble(double* logits, int64_t rows, int64_t classes, Parallel& parallel) { LogSoftmax(logits, rows, classes, parallel); }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(LossesFloat);
HWY_EXPORT(LossesDouble);
HWY_EXPORT(LogSoftmaxFloat);
HWY_EXPORT(LogSoftmaxDouble);

void smoothed_cross_entropy(const SmoothedCrossEntropy<float>& io, Parallel& parallel) { HWY_DYNAMIC_DISPATCH(LossesFloat)(io, parallel); }
void smoothed_cross_entropy(const SmoothedCrossEntropy<double>& io, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(LossesDouble)(io, parallel);
}
void log_softmax_rows(float* logits, int64_t rows, int64_t classes, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxFloat)(logits, rows, classes, parallel);
}
void log_softmax_rows(double* logits, int64_t rows, int64_t classes, Parallel& parallel) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxDouble)(logits, rows, classes, parallel);
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
