// AtomicFile and its neighbours on POSIX calls.
#include "support/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/file_error.h"

namespace hinge::support {
namespace {

const char* advice(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return "free some space there, or choose another disk";
    case EFBIG: return "the file is larger than the system allows here (see ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS: return "choose a folder that you may write to, or change its permissions";
    case ENOENT:
    case ENOTDIR: return "check the path: each folder in it must exist";
    case EMFILE:
    case ENFILE: return "too many files are open (see ulimit -n)";
    default: return "check the path and the disk";
  }
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The reason why it could not be flushed; 0 if it was.
int sync_path(const std::string& path, int flags) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC); });
  if (descriptor < 0) throw_file_error("open", path);
  const int failed = uninterrupted([&] { return ::fsync(descriptor); }) != 0 ? errno : 0;
  ::close(descriptor);
  return failed;
}

}  // namespace

void throw_file_error(const char* doing, const std::string& path) { throw_file_error(doing, path, errno); }

void throw_file_error(const char* doing, const std::string& path, int error_number) {
  throw FileError(fmt::format("cannot {} '{}': {}; {}", doing, path, std::strerror(error_number), advice(error_number)), error_number);
}

void write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (written < 0) throw_file_error("write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) throw std::runtime_error("cannot write a file without a name: give a path");
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path_, ignored);
  if (std::filesystem::is_directory(status))
    throw std::runtime_error(fmt::format("cannot write '{}': it is a folder; give a file name", path_));
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw std::runtime_error(fmt::format("cannot replace '{}': it is not an ordinary file; give another name", path_));

  static std::atomic<uint64_t> count = 0;
  do {
    temporary_ = fmt::format("{}.{}-{}{}", path_, ::getpid(), count++, kPartialSuffix);
    descriptor_ = uninterrupted([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) throw_file_error("create", path_);
  const auto mode = static_cast<mode_t>(status.permissions() & std::filesystem::perms::all);
  if (std::filesystem::exists(status) && ::fchmod(descriptor_, mode) != 0) {
    const int failed = errno;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
    throw_file_error("keep the permissions of", path_, failed);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) { write_all(descriptor_, bytes, path_); }

void AtomicFile::commit() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) throw_file_error("flush", path_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) throw_file_error("rename to", path_);
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(path_));
}

std::string read_file(const std::string& path) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (descriptor < 0) throw_file_error("open", path);
  std::string text;
  char buffer[1 << 16];
  ssize_t got = 0;
  int failed = 0;
  do {
    got = uninterrupted([&] { return ::read(descriptor, buffer, sizeof buffer); });
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
    if (got < 0) failed = errno;
  } while (got != 0 && failed == 0);
  ::close(descriptor);
  if (failed != 0) throw_file_error("read", path, failed);
  return text;
}

void sync_file(const std::string& path) {
  if (const int failed = sync_path(path, O_RDONLY); failed != 0) throw_file_error("flush", path, failed);
}

void sync_folder(const std::string& path) {
  // Some file systems, of networks for example, flush files but no folders.
  if (const int failed = sync_path(path, O_RDONLY | O_DIRECTORY); failed != 0 && failed != EINVAL && failed != ENOTSUP)
    throw_file_error("flush", path, failed);
}

void make_folders(const std::string& folder) {
  std::vector<std::filesystem::path> missing;
  std::error_code ignored;
  for (std::filesystem::path at = std::filesystem::absolute(folder); !std::filesystem::exists(at, ignored) && at.has_relative_path();
       at = at.parent_path())
    missing.push_back(at);
  for (; !missing.empty(); missing.pop_back()) {
    if (::mkdir(missing.back().c_str(), 0777) != 0 && errno != EEXIST) throw_file_error("make the folder", folder);
    const std::string above = folder_of(missing.back().string());
    if (::access(above.c_str(), R_OK) == 0) sync_folder(above);  // one that may only be written to cannot be flushed
  }
  if (!std::filesystem::is_directory(folder, ignored)) throw_file_error("make the folder", folder, ENOTDIR);
}

}  // namespace hinge::support
