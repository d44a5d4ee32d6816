#include "bench/rounds.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/machine.h"
#include "bench/timing.h"
#include "hinge/kernels/cpu.h"
#include "hinge/openmp_parallel.h"

namespace hinge::bench {

std::string Timing::quartiles(int digits) const {
  return fmt::format("{:.{}f}-{:.{}f}", lower_quartile_ms, digits, upper_quartile_ms, digits);
}

Timing summarise(const std::vector<double>& seconds) {
  const auto ms = [&](double share) { return 1e3 * quantile(seconds, share); };
  return {ms(0.5), ms(0.25), ms(0.75), ms(0), ms(1)};
}

void add_timing(nlohmann::ordered_json& row, const Timing& timing) {
  row["median_ms"] = timing.median_ms;
  row["lower_quartile_ms"] = timing.lower_quartile_ms;
  row["upper_quartile_ms"] = timing.upper_quartile_ms;
  row["fastest_ms"] = timing.fastest_ms;
}

std::string Yardsticks::machine(const std::string& more) const {
  return fmt::format("{}, {}, {} thread{}, float32{}", cpu, simd, threads, threads == 1 ? "" : "s", more);
}

std::string Yardsticks::heading(const std::string& more) const {
  return fmt::format("{}: FMA peak {:.0f} GFLOP/s, oneDNN sgemm {:.0f} ({:.0f}% of it)\n", machine(more), fma_peak_gflops, sgemm_gflops,
                     percent_of_peak(sgemm_gflops));
}

nlohmann::ordered_json to_json(const Yardsticks& yardsticks) {
  return {{"fma_peak_gflops", yardsticks.fma_peak_gflops},
          {"sgemm_gflops", yardsticks.sgemm_gflops},
          {"threads", yardsticks.threads},
          {"simd", yardsticks.simd},
          {"cpu", yardsticks.cpu}};
}

Rounds::Rounds(int threads, ShowProgress progress) : progress_(std::move(progress)), parallel_(std::make_unique<OpenMpParallel>(threads)) {
  omp_set_num_threads(threads);  // for oneDNN
}

std::vector<Timing> Rounds::measure(const std::string& what, size_t cases, int warm_up, int rounds,
                                    const std::function<double(size_t)>& sample) {
  std::vector<std::vector<double>> seconds(cases);
  for (int round = -warm_up; round < rounds; ++round) {
    progress_(fmt::format("{}, round {} of {}", what, std::max(round, -1) + 1, rounds));
    for (size_t i = 0; i < cases; ++i) {
      if (round < 0) {
        sample(i);
        continue;
      }
      peaks_.push_back(kernels::measure_fma_peak(*parallel_, 4));
      sgemms_.push_back(sgemm_.run());
      seconds[i].push_back(sample(i));
    }
  }
  std::vector<Timing> timings;
  for (const std::vector<double>& samples : seconds) timings.push_back(summarise(samples));
  return timings;
}

Yardsticks Rounds::yardsticks() const {
  return {median(peaks_), median(sgemms_), parallel_->workers(), kernels::simd_target(), probe_cpu().model};
}

}  // namespace hinge::bench
