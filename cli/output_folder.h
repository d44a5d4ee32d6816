// The folder that --out names, for commands that write several files.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/atomic_file.h"

namespace hinge::cli {

class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& path) : path_(path) {
    std::error_code failure;
    std::filesystem::create_directories(path_, failure);
    if (failure)
      throw std::runtime_error(
          fmt::format("cannot make the folder '{}': {}; choose another with --out", path_.string(), failure.message()));
  }
  void write(const std::string& name, const std::string& content) {
    files_.push_back((path_ / name).string());
    support::AtomicFile(files_.back()).commit(content);
  }
  // Those that were written, in their order.
  const std::vector<std::string>& files() const { return files_; }

 private:
  std::filesystem::path path_;
  std::vector<std::string> files_;
};

}  // namespace hinge::cli
