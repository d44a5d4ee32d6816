// Reading by stdio and zlib.
#include "data/files.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "data/error.h"

namespace hinge::data {
namespace {

[[noreturn]] void cannot_read(const std::string& path) {
  throw DataError(path, fmt::format("cannot be read: {}", errno != 0 ? std::strerror(errno) : "unknown reason"));
}

void refuse_folder(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw DataError(path, "is a folder where a file is expected");
}

}  // namespace

std::vector<uint8_t> read_bytes(const std::string& path) {
  refuse_folder(path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) cannot_read(path);
  std::error_code no_size;
  const uintmax_t size = std::filesystem::file_size(path, no_size);
  std::vector<uint8_t> bytes(no_size ? 0 : size);
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get())) cannot_read(path);
  if (bytes.empty()) throw DataError(path, "is empty; fetch it again or remove it");
  return bytes;
}

MaybeGzipped::MaybeGzipped(std::string path) : path_(std::move(path)) {
  refuse_folder(path_);
  file_ = gzopen(path_.c_str(), "rb");
  if (file_ == nullptr) cannot_read(path_);
}

MaybeGzipped::~MaybeGzipped() {
  if (file_ != nullptr) gzclose(static_cast<gzFile>(file_));
}

std::vector<uint8_t> MaybeGzipped::read(uint64_t count) {
  constexpr uint64_t kFirst = 1 << 16, kMost = 4 << 20;  // a count that the file does not keep must not cost its memory
  uint64_t chunk = kFirst;
  std::vector<uint8_t> bytes;
  while (file_ != nullptr && bytes.size() < count) {
    const auto file = static_cast<gzFile>(file_);
    const size_t before = bytes.size(), wanted = std::min(chunk, count - before);
    chunk = std::min(2 * chunk, kMost);
    bytes.resize(before + wanted);
    const int got = gzread(file, bytes.data() + before, static_cast<unsigned>(wanted));
    bytes.resize(before + static_cast<size_t>(got > 0 ? got : 0));
    begun_ |= got > 0;
    if (got > 0) continue;
    int code = Z_OK;
    const std::string reason = gzerror(file, &code);
    // At the end of a stream that was cut short, gzread gives what there is and only the closing reports it.
    file_ = nullptr;
    const int closing = gzclose(file);
    if (code == Z_BUF_ERROR || closing == Z_BUF_ERROR) throw DataError(path_, "is cut short: the gzip stream has no end; fetch it again");
    if (got < 0 || code < 0)
      throw DataError(path_, fmt::format("is corrupt: {}; fetch it again", code == Z_ERRNO ? std::strerror(errno) : reason));
    if (!begun_) throw DataError(path_, "is empty; fetch it again or remove it");
  }
  return bytes;
}

std::vector<std::string> read_lines(const std::string& path) {
  const std::vector<uint8_t> bytes = read_bytes(path);
  std::vector<std::string> lines(1);
  for (const uint8_t byte : bytes) {
    if (byte == '\n')
      lines.emplace_back();
    else if (byte != '\r')
      lines.back().push_back(static_cast<char>(byte));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace hinge::data
