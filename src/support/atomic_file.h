// A file that appears whole or not at all: written beside its final place, flushed to the disk, then renamed. And the few calls on files
// that report their path, the reason and what to do.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

namespace hinge::support {

class AtomicFile {
 public:
  // Opens the temporary file at once, so that a path that cannot be written fails before the work, not after it. A file that is there
  // hands its permissions on.
  // Throws std::runtime_error with the path and the reason, here and below.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(), nothing is left behind
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Adds to the end, as often as needed.
  void write(std::string_view bytes);
  // From here on the file is there, with all that was written, and stays after a power cut. Nothing can be written any more.
  void commit();
  void commit(std::string_view bytes) { write(bytes), commit(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

// What names of temporary files end with; one that is there without its writer is the leftover of a crash.
inline constexpr std::string_view kPartialSuffix = ".partial";

// What a system call returns that is made again whenever a signal interrupts it.
template <class Call> auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// The whole content of a file.
std::string read_file(const std::string& path);

// Flushes a file's content, or a folder's list of names, to the disk. A folder whose file system has no such thing is left as it is.
void sync_file(const std::string& path);
void sync_folder(const std::string& path);

// Makes a folder and those above it that are missing; they stay after a power cut.
void make_folders(const std::string& folder);

// Writes all of `bytes` to an open file; `path` is for the message.
void write_all(int descriptor, std::string_view bytes, const std::string& path);

// Throws "cannot <doing> '<path>': <text of errno>" and what to do about it. The first form takes errno as it stands.
[[noreturn]] void throw_file_error(const char* doing, const std::string& path);
[[noreturn]] void throw_file_error(const char* doing, const std::string& path, int error_number);

}  // namespace hinge::support
