// How much memory this process has needed, and how much there is.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "support/container_limits.h"

namespace hinge::support {

// The largest resident size so far. Not getrusage's: that one begins with the size of the program that started this one.
inline int64_t largest_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

// From now on the largest size counts from the present one; where the system does not allow it, nothing happens.
inline void forget_largest_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

// That of the machine, or what the container of this process may use of it.
inline int64_t usable_memory_bytes() {
  return std::min(int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), container_limits().memory_bytes);
}

}  // namespace hinge::support
