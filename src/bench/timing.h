// Wall-clock time of a call, and what to say about repeated samples of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace hinge::bench {

// Seconds that one call of `body` takes, from `calls` of them in a row.
template <typename Body> double seconds_per_call(int calls, Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

// The value below which a share `q` of the samples lies, interpolated between neighbours. Needs at least one sample.
inline double quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  const double place = q * static_cast<double>(samples.size() - 1), below = std::floor(place);
  const size_t at = static_cast<size_t>(below), next = std::min(at + 1, samples.size() - 1);
  return samples[at] + (place - below) * (samples[next] - samples[at]);
}

inline double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

}  // namespace hinge::bench
