// A file that appears whole or not at all: written beside its final place, flushed to the disk, then renamed.
#pragma once

#include <string>
#include <string_view>

namespace hinge::experiment {

class AtomicFile {
 public:
  // Opens the temporary file at once, so that a path that cannot be written fails before the work, not after it.
  // Throws std::runtime_error with the path and the reason.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(), nothing is left behind
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void commit(std::string_view text);
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace hinge::experiment
