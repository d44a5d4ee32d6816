// Whole files into memory, and text files into lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hinge::data {

// Throws DataError when the file cannot be read or is empty.
std::vector<uint8_t> read_bytes(const std::string& path);

// A file that may be packed by gzip, from its beginning on; one that is not is read as it is.
class MaybeGzipped {
 public:
  // Throws DataError when the file cannot be read, here and below, also if it is empty, cut short or corrupt.
  explicit MaybeGzipped(std::string path);
  ~MaybeGzipped();
  MaybeGzipped(const MaybeGzipped&) = delete;
  MaybeGzipped& operator=(const MaybeGzipped&) = delete;

  // The next bytes: `count`, or all there are.
  std::vector<uint8_t> read(uint64_t count);

 private:
  std::string path_;
  void* file_ = nullptr;  // zlib's
  bool begun_ = false;
};

// Lines without their line ends (\n or \r\n) and without empty ones at the end of the file.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace hinge::data
