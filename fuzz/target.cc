// The table of the targets, and what they share.
#include "target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace hinge::fuzz {

// One per file of targets/. Requests to `hinge watch --web` will have theirs here.
#define HINGE_FUZZ_TARGETS(X) \
  X(cifar)                    \
  X(config) X(idx) X(image) X(metrics) X(mo) X(packed) X(parallel) X(po) X(run) X(safetensors) X(sentencepiece) X(sweep) X(sweep_results)

#define X(name) void name##_target(Input input);
HINGE_FUZZ_TARGETS(X)
#undef X

const std::vector<Target>& targets() {
#define X(name) {#name, &name##_target},
  static const std::vector<Target> all = {HINGE_FUZZ_TARGETS(X)};
#undef X
  return all;
}

void run(const Target& target, Input input) {
  try {
    target.run(input);
  } catch (const std::runtime_error&) {
    // It was refused.
  }
}

MemoryFile::MemoryFile() : descriptor_(::memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
  if (descriptor_ < 0) std::abort();
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

const std::string& MemoryFile::holding(Input bytes) {
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return path_;
}

}  // namespace hinge::fuzz
