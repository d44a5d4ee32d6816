// SIMD targets by name, and the rate of fused multiply-adds on registers.
#include "hinge/kernels/cpu.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#define HWY_TARGET_INCLUDE "kernels/cpu.cc"
#include "kernels/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent sums, as in the attention tiles; returns the operations done. The sums go to `sink` so that they are not optimised
// away.
double MultiplyAddRegisters(int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V a = hn::Set(d, 0.999f), b = hn::Set(d, sink[0]);
  // Different starts, or the compiler would see one sum in all of them.
  V s0 = hn::Iota(d, 0), s1 = hn::Iota(d, 1), s2 = hn::Iota(d, 2), s3 = hn::Iota(d, 3), s4 = hn::Iota(d, 4), s5 = hn::Iota(d, 5);
  V s6 = hn::Iota(d, 6), s7 = hn::Iota(d, 7), s8 = hn::Iota(d, 8), s9 = hn::Iota(d, 9), s10 = hn::Iota(d, 10), s11 = hn::Iota(d, 11);
  for (int64_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, a, b);
    s1 = hn::MulAdd(s1, a, b);
    s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b);
    s4 = hn::MulAdd(s4, a, b);
    s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b);
    s7 = hn::MulAdd(s7, a, b);
    s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b);
    s10 = hn::MulAdd(s10, a, b);
    s11 = hn::MulAdd(s11, a, b);
  }
  const V s = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                      hn::Add(hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)), hn::Add(hn::Add(s8, s9), hn::Add(s10, s11))));
  *sink = hn::GetLane(hn::SumOfLanes(d, s));
  return 2.0 * 12.0 * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

int64_t VectorBytes() { return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint8_t>())); }

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(MultiplyAddRegisters);
HWY_EXPORT(VectorBytes);

namespace {

std::vector<std::string> names(int64_t targets) {
  std::vector<std::string> list;
  for (int bit = 0; bit < 63; ++bit)  // the lower the bit, the better the target
    if (targets & (int64_t{1} << bit)) list.emplace_back(hwy::TargetName(int64_t{1} << bit));
  return list;
}

// Found out before anybody forces a target.
int64_t usable_targets() {
  static const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

}  // namespace

std::string simd_target() {
  usable_targets();
  return names(hwy::SupportedTargets() & HWY_TARGETS).front();
}

int64_t simd_vector_bytes() { return HWY_DYNAMIC_DISPATCH(VectorBytes)(); }

std::vector<std::string> compiled_simd_targets() { return names(HWY_TARGETS); }
std::vector<std::string> usable_simd_targets() { return names(usable_targets()); }

bool has_intel_avx512() {
#if HWY_ARCH_X86
  return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

bool force_simd_target(const std::string& name) {
  int64_t chosen = 0;  // 0: whatever the machine has
  for (int64_t rest = usable_targets(); rest != 0 && !name.empty(); rest &= rest - 1)
    if (name == hwy::TargetName(rest & -rest)) chosen = rest & -rest;
  if (chosen == 0 && !name.empty()) return false;
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

double measure_fma_peak(Parallel& parallel, int rounds) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSteps = 400'000;  // about a millisecond and a half
  constexpr size_t kApart = 32;        // floats between two workers' sinks: no shared cache line
  const int workers = parallel.workers();
  std::vector<float> sinks(static_cast<size_t>(workers) * kApart, 0.001f);
  std::vector<double> operations(static_cast<size_t>(workers) * kApart);
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    parallel.run(workers, [&](int64_t task, int) {
      const size_t at = static_cast<size_t>(task) * kApart;
      operations[at] = HWY_DYNAMIC_DISPATCH(MultiplyAddRegisters)(kSteps, &sinks[at]);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    double total = 0;
    for (size_t w = 0; w < static_cast<size_t>(workers); ++w) total += operations[w * kApart];
    best = std::max(best, total / seconds * 1e-9);
  }
  return best;
}

}  // namespace hinge::kernels
#endif  // HWY_ONCE
