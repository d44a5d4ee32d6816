// Judges a machine: what makes Hinge slow there, and what to do about it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/machine.h"

namespace hinge::bench {
namespace {

#if defined(__aarch64__)
constexpr const char* kDebianTriple = "aarch64-linux-gnu";
#else
constexpr const char* kDebianTriple = "x86_64-linux-gnu";
#endif

const char* const kInstallOpenBlas = "sudo apt-get install libopenblas0-openmp";

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Installing alone is not enough where another BLAS was chosen or has the higher priority.
std::string choose_openblas_openmp() {
  return fmt::format("{0} && sudo update-alternatives --set libblas.so.3-{1} /usr/lib/{1}/openblas-openmp/libblas.so.3", kInstallOpenBlas,
                     kDebianTriple);
}

void judge_blas(const Machine& machine, std::vector<Finding>& found) {
  const std::string rate = fmt::format("{:.0f} GFLOP/s, against {:.0f} of oneDNN", machine.blas.sgemm_gflops, machine.onednn_sgemm_gflops);
  switch (machine.blas.kind) {
    case BlasKind::none:
      found.push_back({"No BLAS was found (libblas.so.3), which LibTorch needs for its matrix products.", kInstallOpenBlas});
      break;
    case BlasKind::reference:
      found.push_back({fmt::format("LibTorch multiplies matrices with the reference BLAS, which is one thread of plain loops ({}).", rate),
                       choose_openblas_openmp()});
      break;
    case BlasKind::openblas_pthread:
      found.push_back(
          {fmt::format("LibTorch multiplies matrices with OpenBLAS's pthread build, whose threads fight with OpenMP's ({}).", rate),
           choose_openblas_openmp()});
      break;
    case BlasKind::openblas_serial:
      if (machine.cpu.cores > 1)
        found.push_back({fmt::format("LibTorch multiplies matrices with OpenBLAS's serial build, which uses one core of {} ({}).",
                                     machine.cpu.cores, rate),
                         choose_openblas_openmp()});
      break;
    case BlasKind::openblas_openmp:
    case BlasKind::blis:
    case BlasKind::atlas:
    case BlasKind::mkl:
    case BlasKind::unknown: break;
  }
}

void judge_threads(const Machine& machine, std::vector<Finding>& found) {
  const int cores = machine.cpu.cores;
  if (cores < machine.cpu.online_cores)
    found.push_back({fmt::format("This process may use {} of the machine's {} cores.", cores, machine.cpu.online_cores),
                     "taskset --cpu-list -p $$    (shows the limit of this shell; a container's is set where it is started)"});
  else if (cores == 1)
    found.push_back(
        {"This machine has one core: nothing runs in parallel.", "use a machine with more cores, or give the virtual machine more"});

  const auto threads = [](int count) { return count == 1 ? std::string("one thread") : fmt::format("{} threads", count); };
  if (machine.threads < cores)
    found.push_back(
        {fmt::format("Hinge uses {} on {} cores: OMP_NUM_THREADS or OMP_THREAD_LIMIT is too low.", threads(machine.threads), cores),
         "unset OMP_NUM_THREADS OMP_THREAD_LIMIT"});

  // Our own measurements put a load of their own on the machine, hence the margin.
  if (machine.cpu.load > 0.5 * cores)
    found.push_back({fmt::format("Other programs keep the processor busy (load {:.1f} on {}): measurements will be low, and "
                                 "trainings slower.",
                                 machine.cpu.load, cores == 1 ? "one core" : fmt::format("{} cores", cores)),
                     "top    (shows which)"});
}

void judge_simd(const Machine& machine, std::vector<Finding>& found) {
#if defined(__x86_64__)
  if (machine.simd.starts_with("AVX")) return;
  if (!has(machine.simd_compiled, "AVX2"))
    found.push_back({fmt::format("The kernels run on {}: this build has no AVX2 code in it.", machine.simd),
                     "CXX=g++-12 cmake --preset release --fresh && cmake --build --preset release"});
  else
    found.push_back({fmt::format("The kernels run on {}: this processor ({}) shows no AVX2, which is worth a factor of two to four.",
                                 machine.simd, machine.cpu.model),
                     "grep -c avx2 /proc/cpuinfo    (0 in a virtual machine: start it with the host's own processor type)"});
#else
  (void)machine, (void)found;
#endif
}

}  // namespace

std::vector<Finding> findings(const Machine& machine) {
  std::vector<Finding> found;
  if (!machine.optimized)
    found.push_back({"This hinge was built for a debugger, not for speed.", "cmake --preset release && cmake --build --preset release"});
  judge_blas(machine, found);
  judge_threads(machine, found);
  judge_simd(machine, found);
  return found;
}

nlohmann::ordered_json to_json(const Machine& machine, const std::vector<Finding>& found) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : found) list.push_back({{"problem", finding.problem}, {"mend", finding.mend}});
  return {
      {"compiler", machine.compiler},
      {"optimized", machine.optimized},
      {"libtorch", {{"version", machine.libtorch.version}, {"mm_gflops", machine.libtorch.mm_gflops}}},
      {"onednn", {{"version", machine.onednn_version}, {"sgemm_gflops", machine.onednn_sgemm_gflops}}},
      {"blas", {{"name", blas_name(machine.blas.kind)}, {"path", machine.blas.path}, {"sgemm_gflops", machine.blas.sgemm_gflops}}},
      {"fma_peak_gflops", machine.fma_peak_gflops},
      {"simd", {{"in_use", machine.simd}, {"compiled", machine.simd_compiled}, {"usable", machine.simd_usable}}},
      {"threads", machine.threads},
      {"cpu",
       {{"model", machine.cpu.model},
        {"cores", machine.cpu.cores},
        {"online_cores", machine.cpu.online_cores},
        {"load", machine.cpu.load}}},
      {"memory", {{"total_bytes", machine.memory.total_bytes}, {"available_bytes", machine.memory.available_bytes}}},
      {"findings", list},
  };
}

}  // namespace hinge::bench
