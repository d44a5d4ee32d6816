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
//
// A kernel that reads and writes what is stored as another type than it computes with is a template <S, T>; it has HINGE_STORED_TYPES and
// the like in place of HINGE_FLOAT_AND_DOUBLE.
#include "kernels/targets.h"
// Before whatever else knows Highway:
#include "hwy/foreach_target.h"
// Once per target:
#include "hwy/highway.h"

#ifndef HINGE_DISPATCH_H_
#define HINGE_DISPATCH_H_

#include <type_traits>

#include "hinge/kernels/half.h"

namespace hinge::kernels {

template <typename T, typename Float, typename Double> constexpr auto of_type(Float of_float, Double of_double) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, float>)
    return of_float;
  else
    return of_double;
}

template <typename S, typename Float, typename Double, typename Brain, typename Half>
constexpr auto of_stored_type(Float of_float, Double of_double, Brain of_bfloat16, Half of_float16) {
  if constexpr (std::is_same_v<S, BFloat16>)
    return of_bfloat16;
  else if constexpr (std::is_same_v<S, Float16>)
    return of_float16;
  else
    return of_type<S>(of_float, of_double);
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

#define HINGE_STORED_TYPES(Kernel)                                   \
  static constexpr auto& Kernel##Float = Kernel<float, float>;       \
  static constexpr auto& Kernel##Double = Kernel<double, double>;    \
  static constexpr auto& Kernel##BFloat16 = Kernel<BFloat16, float>; \
  static constexpr auto& Kernel##Float16 = Kernel<Float16, float>

#define HINGE_EXPORT_STORED(Kernel) \
  HINGE_EXPORT(Kernel);             \
  HWY_EXPORT(Kernel##BFloat16);     \
  HWY_EXPORT(Kernel##Float16)

#define HINGE_DISPATCH_STORED(Kernel, S)                                                                                                  \
  of_stored_type<S>(&HWY_DYNAMIC_DISPATCH(Kernel##Float), &HWY_DYNAMIC_DISPATCH(Kernel##Double), &HWY_DYNAMIC_DISPATCH(Kernel##BFloat16), \
                    &HWY_DYNAMIC_DISPATCH(Kernel##Float16))

#define HINGE_INSTANTIATE_STORED(function)                                \
  template decltype(function<float, float>) function<float, float>;       \
  template decltype(function<double, double>) function<double, double>;   \
  template decltype(function<BFloat16, float>) function<BFloat16, float>; \
  template decltype(function<Float16, float>) function<Float16, float>

#endif  // HINGE_DISPATCH_H_
