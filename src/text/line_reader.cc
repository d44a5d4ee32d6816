// A thread polls and reads, so that whoever writes into a pipe does not have to wait for whoever takes the lines.
#include "text/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "text/error.h"
#include "text/files.h"

namespace hinge::text {
namespace {

constexpr size_t kReadBytes = 1 << 16;                          // the usual capacity of a pipe
constexpr auto kStopInterval = std::chrono::milliseconds(100);  // between two looks at `stopped`

std::string name_of_input(const std::string& path) { return path == "-" ? "standard input" : path; }

TextError unreadable(const std::string& path) { return {name_of_input(path), 0, fmt::format("cannot be read: {}", std::strerror(errno))}; }

bool is_regular_file(const std::string& path) {
  struct stat status {};
  if ((path == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(path.c_str(), &status)) != 0) throw unreadable(path);
  if (S_ISDIR(status.st_mode)) throw TextError(name_of_input(path), 0, "is a folder where a file is expected");
  return S_ISREG(status.st_mode);
}

// Without O_NONBLOCK, open() would wait for somebody to write into a FIFO, and could not be woken.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      : descriptor_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {
    if (descriptor_ < 0) throw unreadable(path);
  }
  ~InputFile() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

LineReader::LineReader(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) live_ |= !is_regular_file(path);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::thread([this, paths] { read_files(paths); });
}

LineReader::~LineReader() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
}

std::optional<LineGroup> LineReader::next(const std::function<bool()>& stopped) {
  std::unique_lock lock(mutex_);
  // While the thread still reads, more is waiting.
  const auto ready = [&] { return ended_ || (idle_ && !groups_.empty()); };
  do {
    if (stopped && stopped()) return std::nullopt;
  } while (!changed_.wait_for(lock, kStopInterval, ready));
  if (groups_.empty()) {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return std::nullopt;
  }
  LineGroup group = std::move(groups_.front());
  groups_.pop_front();
  for (const std::string& line : group.lines) bytes_ -= sizeof(line) + line.size();
  changed_.notify_all();
  return group;
}

void LineReader::read_files(const std::vector<std::string>& paths) {
  std::exception_ptr error;
  try {
    for (const std::string& path : paths) read_file(path);
  } catch (...) {
    error = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  error_ = std::move(error);
  ended_ = true;
  changed_.notify_all();
}

void LineReader::read_file(const std::string& path) {
  const std::string name = name_of_input(path);
  const InputFile file(path);
  UnpackedStream stream([&](char* buffer, size_t size) { return read_bytes(file.descriptor(), path, buffer, size); }, name);
  std::string content;  // what was read and not yet given
  int64_t number = 1;   // of the next line
  for (;;) {
    const size_t before = content.size();  // none of these is a line end
    content.resize(before + kReadBytes);
    const size_t got = stream.read(content.data() + before, kReadBytes);
    content.resize(before + got);
    if (got == 0) break;
    size_t begin = 0;
    for (size_t end = content.find('\n', before); end != std::string::npos; begin = end + 1, end = content.find('\n', begin), ++number)
      if (!give(name, number, std::string_view(content).substr(begin, end - begin))) return;
    content.erase(0, begin);
    if (content.size() > kMostBytes) throw TextError(name, number, fmt::format("is longer than {} MiB; split it", kMostBytes >> 20));
  }
  if (!content.empty() && !(number == 1 && content == kByteOrderMark)) give(name, number++, content);
  end(name, number);
}

size_t LineReader::read_bytes(int file, const std::string& path, char* buffer, size_t size) {
  while (wait_for_bytes(file)) {
    const ssize_t got = ::read(file, buffer, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EAGAIN && errno != EINTR) throw unreadable(path);
  }
  return 0;
}

bool LineReader::wait_for_bytes(int file) {
  pollfd waiting[] = {{file, POLLIN, 0}, {wake_, POLLIN, 0}};
  if (::poll(waiting, 2, 0) <= 0) {
    set_idle(true);
    while (::poll(waiting, 2, -1) < 0 && errno == EINTR) {
    }
    set_idle(false);
  }
  return waiting[1].revents == 0;
}

void LineReader::set_idle(bool idle) {
  const std::scoped_lock lock(mutex_);
  idle_ = idle;
  changed_.notify_all();
}

LineGroup& LineReader::open_group(const std::string& file, int64_t number) {
  if (groups_.empty() || groups_.back().ends_file) groups_.push_back({file, number, {}, false});
  return groups_.back();
}

bool LineReader::give(const std::string& file, int64_t number, std::string_view line) {
  if (number == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::unique_lock lock(mutex_);
  while (bytes_ >= kMostBytes && !closing_) {
    idle_ = true;
    changed_.notify_all();
    changed_.wait(lock);
  }
  if (closing_) return false;
  idle_ = false;
  bytes_ += sizeof(std::string) + line.size();
  open_group(file, number).lines.emplace_back(line);
  return true;
}

void LineReader::end(const std::string& file, int64_t number) {
  const std::scoped_lock lock(mutex_);
  open_group(file, number).ends_file = true;
}

}  // namespace hinge::text
