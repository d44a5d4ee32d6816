// What all benchmarks share: rounds in which the cases take turns, with the FMA peak and oneDNN's sgemm measured beside every sample, so
// that a machine that changes its speed changes all of them alike; and what is said of the samples.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/blas.h"
#include "hinge/kernels/parallel.h"

namespace hinge::bench {

// Gets a short line now and then.
using ShowProgress = std::function<void(const std::string&)>;

// Of the samples of a case.
struct Timing {
  double median_ms = 0, lower_quartile_ms = 0, upper_quartile_ms = 0, fastest_ms = 0, slowest_ms = 0;

  double per_second(double amount) const { return 1e3 * amount / median_ms; }
  double gflops(double flops) const { return 1e-9 * per_second(flops); }
  std::string quartiles(int digits) const;  // "1.2-1.4"
};
Timing summarise(const std::vector<double>& seconds);
// Adds all but the slowest to a row of results.
void add_timing(nlohmann::ordered_json& row, const Timing& timing);

// The machine and what it can do: medians over the samples.
struct Yardsticks {
  double fma_peak_gflops = 0, sgemm_gflops = 0;
  int threads = 1;
  std::string simd, cpu;

  double percent_of_peak(double gflops) const { return 100 * gflops / fma_peak_gflops; }
  // "CPU, AVX2, 2 threads, float32", and `more` behind it, such as ", D 64".
  std::string machine(const std::string& more = "") const;
  // The same with both rates; a line.
  std::string heading(const std::string& more = "") const;
};
nlohmann::ordered_json to_json(const Yardsticks& yardsticks);

class Rounds {
 public:
  // On so many threads of OpenMP, from here on.
  Rounds(int threads, ShowProgress progress);

  // The threads for what is measured.
  kernels::Parallel& parallel() { return *parallel_; }

  // Of each case, the timing of `rounds` samples, after `warm_up` rounds that do not count. `sample` measures a case and returns the
  // seconds of a call. `what` is for the progress.
  std::vector<Timing> measure(const std::string& what, size_t cases, int warm_up, int rounds, const std::function<double(size_t)>& sample);

  // Of all samples so far.
  Yardsticks yardsticks() const;

 private:
  ShowProgress progress_;
  std::unique_ptr<kernels::Parallel> parallel_;
  OneDnnSgemm sgemm_;
  std::vector<double> peaks_, sgemms_;
};

}  // namespace hinge::bench
