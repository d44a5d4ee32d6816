// Lines of files as they come. A pipe, a FIFO or a terminal gives each line as soon as it has ended, without waiting for the end of the
// input. For whole files at once see files.h.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace hinge::text {

// Consecutive lines of a file, without their line ends (\n or \r\n). Whether they are UTF-8 is not checked.
struct LineGroup {
  std::string file;                // its name; "standard input" for "-"
  int64_t first = 1;               // the number of the first line in its file
  std::vector<std::string> lines;  // can be empty at the end of a file
  bool ends_file = false;          // nothing follows in this file
};

class LineReader {
 public:
  // Reads `paths` one after the other in a background thread; "-" is the standard input. gzip and xz are unpacked as they
  // come. Throws TextError for a path that does not exist or is a folder.
  explicit LineReader(const std::vector<std::string>& paths);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Whether lines may have to be waited for: not all inputs are regular files.
  bool live() const { return live_; }

  // All waiting lines of a file, up to about kMostBytes. If there are none, waits until there are, or until `stopped` returns true. Nothing
  // after the end of the last file, or if stopped. Throws TextError for what cannot be read, after all lines before it were given.
  std::optional<LineGroup> next(const std::function<bool()>& stopped = {});

  // How much is read ahead. No line may be longer.
  static constexpr size_t kMostBytes = 4 << 20;

 private:
  void read_files(const std::vector<std::string>& paths);
  void read_file(const std::string& path);
  size_t read_bytes(int file, const std::string& path, char* buffer, size_t size);  // 0 at the end, and if the reader is closing
  bool wait_for_bytes(int file);                                                    // false: the reader is closing
  bool give(const std::string& file, int64_t number, std::string_view line);        // false: the reader is closing
  void end(const std::string& file, int64_t number);
  LineGroup& open_group(const std::string& file, int64_t number);
  void set_idle(bool idle);

  bool live_ = false;
  int wake_ = -1;  // an event that ends the waiting for bytes

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LineGroup> groups_;
  size_t bytes_ = 0;    // of the lines in groups_
  bool idle_ = false;   // the thread is waiting, for bytes or for room
  bool ended_ = false;  // the thread has ended, because of error_ if there is one
  bool closing_ = false;
  std::exception_ptr error_;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace hinge::text
