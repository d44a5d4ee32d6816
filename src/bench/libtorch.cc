// The only file of the benchmarks that includes torch.
#include "bench/libtorch.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <torch/version.h>

#include <algorithm>

#include "bench/timing.h"

namespace hinge::bench {

LibTorch probe_libtorch() {
  LibTorch libtorch{TORCH_VERSION, 0.0};
  const int64_t n = 768;
  const at::Tensor a = at::full({n, n}, 0.5), b = at::full({n, n}, 0.25);  // [n, n]
  at::Tensor c = at::empty({n, n});                                        // [n, n]
  for (int round = 0; round < 4; ++round) {
    const double seconds = seconds_per_call(1, [&] { at::mm_out(c, a, b); });
    libtorch.mm_gflops = std::max(libtorch.mm_gflops, 2.0 * n * n * n / seconds * 1e-9);
  }
  return libtorch;
}

void use_threads(int threads) { at::set_num_threads(threads); }

}  // namespace hinge::bench
