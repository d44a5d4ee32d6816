// Facts about the machine and this build, and what among them makes things slow. Probing and judging are apart, so that the judgement
// can be tested without the machines.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/blas.h"
#include "bench/libtorch.h"

namespace hinge::bench {

struct Cpu {
  std::string model;
  int cores = 1;         // physical cores that this process may use
  int online_cores = 1;  // physical cores of the machine
  double load = 0.0;     // running programs, mean of the last minute
};

struct Memory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
};

Cpu probe_cpu();
Memory probe_memory();

struct Machine {
  std::string compiler;
  bool optimized = true;  // not a debug build
  LibTorch libtorch;
  int threads = 1;  // that a training takes, where its config does not say
  std::string onednn_version;
  double onednn_sgemm_gflops = 0.0;
  Blas blas;
  double fma_peak_gflops = 0.0;  // all threads together
  std::string simd;              // in use
  std::vector<std::string> simd_compiled;
  std::vector<std::string> simd_usable;
  Cpu cpu;
  Memory memory;
};

// Takes about two seconds, most of it the reference BLAS where that is installed.
Machine probe_machine();

// Something that makes Hinge slow here, in plain words, and the command that mends it.
struct Finding {
  std::string problem;
  std::string mend;
};

std::vector<Finding> findings(const Machine&);

nlohmann::ordered_json to_json(const Machine&, const std::vector<Finding>&);

}  // namespace hinge::bench
