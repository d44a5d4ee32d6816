#include "kernels/apply_activation.h"

#include <algorithm>

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/apply_activation.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/highway.h"
#include "kernels/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class H, typename T>
void Apply(const T* x, T* value, T* slope, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN T in[HWY_MAX_BYTES / sizeof(T)] = {}, out[HWY_MAX_BYTES / sizeof(T)], out_slope[HWY_MAX_BYTES / sizeof(T)];
  for (int64_t i = 0; i < n; i += N) {
    const int64_t count = std::min(N, n - i);
    std::copy_n(x + i, count, in);
    hn::Vec<decltype(d)> s;
    hn::Store(H::value_and_slope(d, hn::Load(d, in), s), d, out);
    hn::Store(s, d, out_slope);
    std::copy_n(out, count, value + i);
    std::copy_n(out_slope, count, slope + i);
  }
}

template <typename T>
void ApplyNamed(Activation h, const T* x, T* value, T* slope, int64_t n) {
  switch (h) {
#define HINGE_CASE(name, cls) \
  case Activation::name:      \
    return Apply<cls>(x, value, slope, n);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_CASE)
#undef HINGE_CASE
    case Activation::softmax:
      break;
  }
}

void ApplyFloat(Activation h, const float* x, float* value, float* slope, int64_t n) { ApplyNamed(h, x, value, slope, n); }
void ApplyDouble(Activation h, const double* x, double* value, double* slope, int64_t n) { ApplyNamed(h, x, value, slope, n); }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(ApplyFloat);
HWY_EXPORT(ApplyDouble);

void apply_activation(Activation h, const float* x, float* value, float* slope, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ApplyFloat)(h, x, value, slope, n);
}
void apply_activation(Activation h, const double* x, double* value, double* slope, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ApplyDouble)(h, x, value, slope, n);
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
