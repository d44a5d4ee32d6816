// What the machine offers: the SIMD target in use and the highest rate of fused multiply-adds it reaches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

std::string simd_target();                         // in use, for example "AVX2"
int64_t simd_vector_bytes();                       // of one of its vectors
std::vector<std::string> compiled_simd_targets();  // those in this binary, best first
std::vector<std::string> usable_simd_targets();    // those of them that this machine can run, best first
bool has_intel_avx512();                           // a processor by Intel, with AVX-512

// Uses `name` (one of usable_simd_targets()) from now on; "" goes back to the best. False if the machine or the binary lacks it.
bool force_simd_target(const std::string& name);

// Float32 multiply-adds on registers only, on every worker at once, best of `rounds`: the most that any kernel can reach. GFLOP/s.
double measure_fma_peak(Parallel&, int rounds = 5);

}  // namespace hinge::kernels
