// What LibTorch says of itself, and how fast it multiplies matrices here.
#pragma once

#include <string>

namespace hinge::bench {

struct LibTorch {
  std::string version;
  int threads = 1;
  double mm_gflops = 0.0;  // at::mm, through whichever library LibTorch takes for it
};

LibTorch probe_libtorch();

}  // namespace hinge::bench
