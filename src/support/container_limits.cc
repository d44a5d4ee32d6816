#include "support/container_limits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace hinge::support {
namespace {

namespace fs = std::filesystem;

// The group of this process, "/" or "/a/b": the line "0::/a/b". Empty if there is none.
std::string own_group(const std::string& groups) {
  constexpr const char* kVersion2 = "0::/";
  std::ifstream file(groups);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kVersion2)) return line.substr(line.find('/'));
  return "";
}

// Both files have the word "max" where there is no limit, which is no number.
void lower_to_limits_of(const std::string& group, ContainerLimits& limits) {
  double quota = 0, period = 0;  // microseconds
  if (std::ifstream(group + "/cpu.max") >> quota >> period && quota > 0 && period > 0)
    limits.cores = std::min(limits.cores, quota / period);
  int64_t bytes = 0;
  if (std::ifstream(group + "/memory.max") >> bytes) limits.memory_bytes = std::min(limits.memory_bytes, bytes);
}

}  // namespace

ContainerLimits container_limits(const std::string& groups, const std::string& root) {
  ContainerLimits limits;
  fs::path group = own_group(groups);
  if (group.empty()) return limits;
  for (;; group = group.parent_path()) {
    lower_to_limits_of(root + group.string(), limits);
    if (group == group.root_path()) return limits;
  }
}

}  // namespace hinge::support
