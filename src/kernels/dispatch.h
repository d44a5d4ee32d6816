// Compiles a file of SIMD kernels once for every target and calls, at run time, what fits the machine. No include guard: the file that
// includes it is read again for each target. A kernel is a template over float and double; Highway wants names that are no templates.
//
//   #define HWY_TARGET_INCLUDE "kernels/x.cc"     // this file
//   #include "kernels/dispatch.h"
//   // Once per target:
//   #include "kernels/rows-inl.h"
//
//   HWY_BEFORE_NAMESPACE();
//   namespace hinge::kernels {
//   namespace HWY_NAMESPACE {
//   template <typename T> void Step(const X<T>& x, Parallel& parallel) { ... }
//   HINGE_FLOAT_AND_DOUBLE(Step);
//   }  // namespace HWY_NAMESPACE
//   }  // namespace hinge::kernels
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace hinge::kernels {
//   HINGE_EXPORT(Step);
//   template <typename T> void step(const X<T>& x, Parallel& parallel) { HINGE_DISPATCH(Step, T)(x, parallel); }
//   HINGE_INSTANTIATE(step);                      // the header declares it
//   }  // namespace hinge::kernels
//   #endif  // HWY_ONCE
#include "kernels/targets.h"
// Before whatever else knows Highway:
#include "hwy/foreach_target.h"
// Once per target:
#include "hwy/highway.h"

#ifndef HINGE_DISPATCH_H_
#define HINGE_DISPATCH_H_

#include <type_traits>

namespace hinge::kernels {

template <typename T, typename Float, typename Double> constexpr auto of_type(Float of_float, Double of_double) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, float>)
    return of_float;
  else
    return of_double;
}

}  // namespace hinge::kernels

#define HINGE_FLOAT_AND_DOUBLE(Kernel)                  \
  static constexpr auto& Kernel##Float = Kernel<float>; \
  static constexpr auto& Kernel##Double = Kernel<double>

#define HINGE_EXPORT(Kernel) \
  HWY_EXPORT(Kernel##Float); \
  HWY_EXPORT(Kernel##Double)

#define HINGE_DISPATCH(Kernel, T) of_type<T>(&HWY_DYNAMIC_DISPATCH(Kernel##Float), &HWY_DYNAMIC_DISPATCH(Kernel##Double))

#define HINGE_INSTANTIATE(function)                   \
  template decltype(function<float>) function<float>; \
  template decltype(function<double>) function<double>

#endif  // HINGE_DISPATCH_H_
