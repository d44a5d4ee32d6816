// What the container of this process may use: the limits of its control group (cgroup v2) and of those around it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace hinge::support {

struct ContainerLimits {
  double cores = std::numeric_limits<double>::infinity();  // processor seconds per second
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Without control groups, or without limits, there are none. The arguments are where the kernel tells about them.
ContainerLimits container_limits(const std::string& groups = "/proc/self/cgroup", const std::string& root = "/sys/fs/cgroup");

}  // namespace hinge::support
