// AtomicFile on POSIX calls.
#include "experiment/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace hinge::experiment {

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
  if (path_.empty()) throw std::runtime_error("cannot write a file without a name: give a path");
  if (std::filesystem::is_directory(path_))
    throw std::runtime_error(fmt::format("cannot write '{}': it is a folder; give a file name", path_));
  descriptor_ = ::mkstemp(temporary_.data());
  if (descriptor_ < 0) fail("create");
  // mkstemp gives 0600; a result is an ordinary file. Where permissions cannot be set it stays the owner's own.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(descriptor_, 0666 & ~mask);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::commit(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(descriptor_) != 0) fail("flush");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename to");
  ::close(descriptor_);
  descriptor_ = -1;
}

void AtomicFile::fail(const char* doing) const {
  throw std::runtime_error(
      fmt::format("cannot {} '{}': {}; give a path in a folder that exists and can be written", doing, path_, std::strerror(errno)));
}

}  // namespace hinge::experiment
