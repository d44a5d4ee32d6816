// How much memory this process has needed, and how much the machine has.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

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

inline int64_t machine_memory_bytes() { return int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE); }

}  // namespace hinge::support
