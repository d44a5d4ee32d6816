// How much memory this process has needed.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace hinge::support {

// The largest resident size so far.
inline int64_t largest_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace hinge::support
