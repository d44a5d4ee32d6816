// A pipe for tests of what reads from pipes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace hinge::support {

// Its reading end has a path.
class OpenPipe {
 public:
  OpenPipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  ~OpenPipe() {
    close();
    ::close(ends_[0]);
  }
  OpenPipe(const OpenPipe&) = delete;
  OpenPipe& operator=(const OpenPipe&) = delete;

  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(ends_[1], text.data(), text.size());
      if (written < 0) throw std::runtime_error("nothing can be written");
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  void close() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace hinge::support
