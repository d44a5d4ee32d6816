// What LibTorch says of itself, and how fast it multiplies matrices here.
#pragma once

#include <string>

namespace hinge::bench {

struct LibTorch {
  std::string version;
  double mm_gflops = 0.0;  // at::mm, through whichever library LibTorch takes for it
};

LibTorch probe_libtorch();

// For LibTorch and for OpenMP, as training does.
void use_threads(int threads);

}  // namespace hinge::bench
