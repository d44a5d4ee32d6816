// What the targets share.
#include "target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace hinge::fuzz {

void run(const Target& target, Input input) {
  try {
    target.run(input);
  } catch (const std::runtime_error&) {
    // It was refused.
  }
}

MemoryFolder::MemoryFolder() {
  folder_ = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/hinge-fuzz-XXXXXX");
  if (::mkdtemp(folder_.data()) == nullptr) std::abort();
}

MemoryFolder::~MemoryFolder() { std::filesystem::remove_all(folder_); }

void MemoryFolder::put(const std::string& name, std::string_view bytes) const {
  const std::filesystem::path file = path(name);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
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
