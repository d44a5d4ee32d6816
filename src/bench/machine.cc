// Probes Linux for the processor and the memory, and the linked libraries for the rest.
#include "bench/machine.h"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "bench/timing.h"
#include "hinge/kernels/cpu.h"
#include "hinge/openmp_parallel.h"
#include "support/container_limits.h"
#include "support/threads.h"

namespace hinge::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of "key : value" or "key: value kB"; empty if there is no such line.
std::string field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Threads of one core share a list of siblings; a machine that does not tell counts each thread as a core.
std::string core_of(int cpu) {
  const std::string siblings = first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  return siblings.empty() ? std::to_string(cpu) : siblings;
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

Cpu probe_cpu() {
  Cpu cpu;
  for (const char* key : {"model name", "Model", "Hardware"})
    if (cpu.model.empty()) cpu.model = field("/proc/cpuinfo", key);
  if (cpu.model.empty()) cpu.model = "unknown";

  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  std::set<std::string> all, usable;
  std::istringstream online(first_line("/sys/devices/system/cpu/online"));  // for example "0-3,6"
  for (std::string range; std::getline(online, range, ',');) {
    const int first = std::atoi(range.c_str());
    const size_t dash = range.find('-');
    const int last = dash == std::string::npos ? first : std::atoi(range.c_str() + dash + 1);
    for (int i = first; i <= last; ++i) {
      all.insert(core_of(i));
      if (!known || (i < CPU_SETSIZE && CPU_ISSET(i, &allowed))) usable.insert(core_of(i));
    }
  }
  cpu.online_cores = std::max(1, static_cast<int>(all.size()));
  cpu.cores = std::clamp(static_cast<int>(usable.size()), 1, support::usable_cores());
  double load = 0.0;
  if (::getloadavg(&load, 1) == 1) cpu.load = load;
  return cpu;
}

Memory probe_memory() {
  const auto bytes = [](const char* key) { return static_cast<int64_t>(std::atoll(field("/proc/meminfo", key).c_str())) * 1024; };
  const int64_t limit = support::container_limits().memory_bytes;
  return {std::min(bytes("MemTotal"), limit), std::min(bytes("MemAvailable"), limit)};
}

Machine probe_machine() {
  Machine machine;
  machine.cpu = probe_cpu();
  machine.memory = probe_memory();
  machine.compiler = compiler_name();
#ifndef NDEBUG
  machine.optimized = false;
#endif
  use_threads(support::default_threads());
#pragma omp parallel
#pragma omp single
  machine.threads = omp_get_num_threads();  // a limit of OpenMP's can leave fewer
  machine.simd = kernels::simd_target();
  machine.simd_compiled = kernels::compiled_simd_targets();
  machine.simd_usable = kernels::usable_simd_targets();

  OpenMpParallel parallel(machine.threads);
  machine.fma_peak_gflops = kernels::measure_fma_peak(parallel);
  machine.onednn_version = onednn_version();
  OneDnnSgemm sgemm;
  std::vector<double> rates(9);
  for (double& rate : rates) rate = sgemm.run();
  machine.onednn_sgemm_gflops = median(rates);
  machine.blas = find_blas();
  machine.libtorch = probe_libtorch();
  return machine;
}

}  // namespace hinge::bench
