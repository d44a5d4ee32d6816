// What hinge doctor says of machines that are not this one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/machine.h"

namespace hinge::bench {
namespace {

// Nothing wrong with it.
Machine good_machine() {
  Machine machine;
  machine.compiler = "GCC 12.2.0";
  machine.libtorch = {"1.13.0", 170.0};
  machine.threads = 4;
  machine.onednn_version = "2.6.3";
  machine.onednn_sgemm_gflops = 350.0;
  machine.blas = {BlasKind::openblas_openmp, "/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3", 340.0};
  machine.fma_peak_gflops = 400.0;
  machine.simd = "AVX2";
  machine.simd_compiled = {"AVX3", "AVX2", "SSE4"};
  machine.simd_usable = {"AVX2", "SSE4"};
  machine.cpu = {"Some CPU", 4, 4, 0.1};
  machine.memory = {int64_t{16} << 30, int64_t{12} << 30};
  return machine;
}

// The only finding must name the problem and the command.
void expect_finding(const Machine& machine, const std::string& problem, const std::string& mend) {
  const std::vector<Finding> found = findings(machine);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].problem.find(problem), std::string::npos) << found[0].problem;
  EXPECT_NE(found[0].mend.find(mend), std::string::npos) << found[0].mend;
}

TEST(Findings, GoodMachineHasNone) { EXPECT_TRUE(findings(good_machine()).empty()); }

TEST(Findings, Blas) {
  Machine machine = good_machine();
  machine.blas.kind = BlasKind::reference;
  expect_finding(machine, "reference BLAS", "apt-get install libopenblas0-openmp");
  machine.blas.kind = BlasKind::openblas_pthread;
  expect_finding(machine, "pthread", "update-alternatives --set libblas.so.3-");
  machine.blas.kind = BlasKind::openblas_serial;
  expect_finding(machine, "serial", "libopenblas0-openmp");
  machine.blas.kind = BlasKind::none;
  expect_finding(machine, "No BLAS", "libopenblas0-openmp");
  for (const BlasKind fine : {BlasKind::blis, BlasKind::mkl, BlasKind::unknown}) {
    machine.blas.kind = fine;
    EXPECT_TRUE(findings(machine).empty()) << blas_name(fine);
  }
}

TEST(Findings, Threads) {
  Machine machine = good_machine();
  machine.threads = 1;
  expect_finding(machine, "Hinge uses one thread on 4 cores", "unset OMP_NUM_THREADS");
  machine.threads = 3;
  expect_finding(machine, "Hinge uses 3 threads on 4 cores", "unset OMP_NUM_THREADS");
  machine = good_machine();
  machine.cpu.cores = 2;
  expect_finding(machine, "2 of the machine's 4 cores", "taskset");
  machine.cpu.cores = machine.cpu.online_cores = 1;
  expect_finding(machine, "one core", "more cores");
  machine = good_machine();
  machine.cpu.load = 3.5;
  expect_finding(machine, "load 3.5 on 4 cores", "top");
}

TEST(Findings, Build) {
  Machine machine = good_machine();
  machine.optimized = false;
  expect_finding(machine, "debugger", "cmake --preset release");
}

#if defined(__x86_64__)
TEST(Findings, Simd) {
  Machine machine = good_machine();
  machine.simd = "AVX3";
  EXPECT_TRUE(findings(machine).empty());
  machine.simd = "SSE4";
  expect_finding(machine, "shows no AVX2", "/proc/cpuinfo");
  machine.simd_compiled = {"SSE4"};
  expect_finding(machine, "no AVX2 code", "cmake --preset release");
}
#endif

TEST(Findings, JsonHoldsThem) {
  Machine machine = good_machine();
  machine.blas.kind = BlasKind::reference;
  const auto json = to_json(machine, findings(machine));
  EXPECT_EQ(json["blas"]["name"], "reference BLAS");
  ASSERT_EQ(json["findings"].size(), 1u);
  EXPECT_NE(json["findings"][0]["mend"].get<std::string>().find("libopenblas0-openmp"), std::string::npos);
}

TEST(RecogniseBlas, ByPathAndByItsOwnWord) {
  const std::string lib = "/usr/lib/x86_64-linux-gnu/";
  EXPECT_EQ(recognise_blas("", -1), BlasKind::none);
  EXPECT_EQ(recognise_blas(lib + "blas/libblas.so.3.11.0", -1), BlasKind::reference);
  EXPECT_EQ(recognise_blas(lib + "openblas-pthread/libblas.so.3", -1), BlasKind::openblas_pthread);
  EXPECT_EQ(recognise_blas(lib + "openblas-openmp/libblas.so.3", -1), BlasKind::openblas_openmp);
  EXPECT_EQ(recognise_blas(lib + "openblas-serial/libblas.so.3", -1), BlasKind::openblas_serial);
  EXPECT_EQ(recognise_blas(lib + "blis-openmp/libblas.so.3", -1), BlasKind::blis);
  EXPECT_EQ(recognise_blas(lib + "libmkl_rt.so", -1), BlasKind::mkl);
  EXPECT_EQ(recognise_blas("/opt/some/libblas.so", -1), BlasKind::unknown);
  EXPECT_EQ(recognise_blas("/opt/some/libblas.so", 0), BlasKind::openblas_serial);
  EXPECT_EQ(recognise_blas("/opt/some/libblas.so", 1), BlasKind::openblas_pthread);
  EXPECT_EQ(recognise_blas("/opt/some/libblas.so", 2), BlasKind::openblas_openmp);
}

TEST(ProbeMachine, ThisOneIsSane) {
  const Cpu cpu = probe_cpu();
  EXPECT_GE(cpu.cores, 1);
  EXPECT_GE(cpu.online_cores, cpu.cores);
  EXPECT_FALSE(cpu.model.empty());
  const Memory memory = probe_memory();
  EXPECT_GT(memory.total_bytes, int64_t{64} << 20);
  EXPECT_GT(memory.available_bytes, 0);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace hinge::bench
