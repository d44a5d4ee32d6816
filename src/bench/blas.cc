// oneDNN is linked; the BLAS is found at run time, because Debian lets the administrator choose what libblas.so.3 is.
#include "bench/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "bench/timing.h"

namespace hinge::bench {
namespace {

double product_flops(int64_t n) { return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*, const float*,
                       const int*, const float*, float*, const int*);

// Best of a few: a first slow one (threads starting, cold pages) does not count. The reference BLAS takes 0.1 s a product or more.
double measure_sgemm(Sgemm sgemm) {
  const int n = 768, rounds = 4;
  std::vector<float> a(static_cast<size_t>(n) * n, 0.5f), b(a), c(a);
  const float one = 1.0f, zero = 0.0f;
  double best = 0.0;
  for (int round = 0; round < rounds; ++round) {
    const double seconds = seconds_per_call(1, [&] { sgemm("N", "N", &n, &n, &n, &one, a.data(), &n, b.data(), &n, &zero, c.data(), &n); });
    best = std::max(best, product_flops(n) / seconds * 1e-9);
  }
  return best;
}

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

OneDnnSgemm::OneDnnSgemm(int64_t n)
    : n_(n), a_(static_cast<size_t>(n * n), 0.5f), b_(static_cast<size_t>(n * n), 0.25f), c_(static_cast<size_t>(n * n)) {
  run();
  run();
}

double OneDnnSgemm::run() {
  dnnl_status_t status = dnnl_success;
  const double seconds =
      seconds_per_call(1, [&] { status = dnnl_sgemm('N', 'N', n_, n_, n_, 1.0f, a_.data(), n_, b_.data(), n_, 0.0f, c_.data(), n_); });
  if (status != dnnl_success) throw std::runtime_error(fmt::format("oneDNN's sgemm failed with status {}", static_cast<int>(status)));
  return product_flops(n_) / seconds * 1e-9;
}

BlasKind recognise_blas(const std::string& path, int openblas_parallel) {
  if (path.empty()) return BlasKind::none;
  if (openblas_parallel == 0) return BlasKind::openblas_serial;
  if (openblas_parallel == 1) return BlasKind::openblas_pthread;
  if (openblas_parallel == 2) return BlasKind::openblas_openmp;
  if (contains(path, "openblas-openmp") || contains(path, "openblaso")) return BlasKind::openblas_openmp;
  if (contains(path, "openblas-pthread") || contains(path, "openblasp")) return BlasKind::openblas_pthread;
  if (contains(path, "openblas")) return BlasKind::openblas_serial;
  if (contains(path, "blis")) return BlasKind::blis;
  if (contains(path, "atlas")) return BlasKind::atlas;
  if (contains(path, "mkl")) return BlasKind::mkl;
  if (contains(path, "/blas/") || contains(path, "libblas.so.3.")) return BlasKind::reference;
  return BlasKind::unknown;
}

std::string blas_name(BlasKind kind) {
  switch (kind) {
    case BlasKind::none: return "none";
    case BlasKind::reference: return "reference BLAS";
    case BlasKind::openblas_serial: return "OpenBLAS (serial)";
    case BlasKind::openblas_pthread: return "OpenBLAS (pthread)";
    case BlasKind::openblas_openmp: return "OpenBLAS (OpenMP)";
    case BlasKind::blis: return "BLIS";
    case BlasKind::atlas: return "ATLAS";
    case BlasKind::mkl: return "MKL";
    case BlasKind::unknown: return "unknown BLAS";
  }
  return "unknown BLAS";
}

Blas find_blas() {
  Blas blas;
  // The handle stays open: LibTorch, if it is loaded, uses the same library.
  void* library = ::dlopen("libblas.so.3", RTLD_LAZY | RTLD_LOCAL);
  void* sgemm = library ? ::dlsym(library, "sgemm_") : nullptr;
  Dl_info info{};
  if (!sgemm || ::dladdr(sgemm, &info) == 0 || !info.dli_fname) return blas;
  std::error_code ignored;
  const std::filesystem::path resolved = std::filesystem::canonical(info.dli_fname, ignored);
  blas.path = resolved.empty() ? info.dli_fname : resolved.string();

  using GetParallel = int (*)();
  const auto openblas_get_parallel = reinterpret_cast<GetParallel>(::dlsym(library, "openblas_get_parallel"));
  blas.kind = recognise_blas(blas.path, openblas_get_parallel ? openblas_get_parallel() : -1);
  blas.sgemm_gflops = measure_sgemm(reinterpret_cast<Sgemm>(sgemm));
  return blas;
}

}  // namespace hinge::bench
