// The rate of float32 matrix products, as a yardstick: oneDNN's, and that of whichever BLAS LibTorch would load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hinge::bench {

std::string onednn_version();  // of the library in use, for example "2.6.3"

// GFLOP/s of one product of two n x n matrices on OpenMP's threads, each time run() is called.
class OneDnnSgemm {
 public:
  explicit OneDnnSgemm(int64_t n = 768);
  double run();

 private:
  int64_t n_;
  std::vector<float> a_, b_, c_;
};

// What stands behind libblas.so.3.
enum class BlasKind { none, reference, openblas_serial, openblas_pthread, openblas_openmp, blis, atlas, mkl, unknown };

struct Blas {
  BlasKind kind = BlasKind::none;
  std::string path;           // of the library itself, links followed; empty if there is none
  double sgemm_gflops = 0.0;  // measured
};

// The kind as told by a library's path and, where it has OpenBLAS's openblas_get_parallel(), its answer (-1: it has not).
BlasKind recognise_blas(const std::string& path, int openblas_parallel);
std::string blas_name(BlasKind kind);  // for people, for example "OpenBLAS (OpenMP)"

// Finds the BLAS that LibTorch's libblas.so.3 leads to, and measures its sgemm.
Blas find_blas();

}  // namespace hinge::bench
