// Programs that this process starts and watches. They end when it does, whichever way it ends: the system then sends them SIGTERM.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hinge::support {

struct ChildCommand {
  std::string program;                                                // its path
  std::vector<std::string> arguments = {};                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment = {};  // set beside this process's own
  std::string out = {}, err = {};                                     // files that it writes at the end of; may be the same
  int out_descriptor = -1, err_descriptor = -1;                       // instead of files; stay open here
};

struct ChildEnd {
  int code = -1;   // exit code; -1: ended by a signal
  int signal = 0;  // which
};

class ChildProcess {
 public:
  // In a process group of its own, so that a Ctrl-C on the terminal reaches it only through send(). From the main thread: the system takes
  // the end of the thread that started it for the end of the process. Throws std::runtime_error.
  explicit ChildProcess(const ChildCommand& command);
  ~ChildProcess();  // sends SIGTERM and waits, if it still runs
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t id() const { return id_; }
  void send(int signal) const;     // nothing happens once it has ended
  std::optional<ChildEnd> poll();  // nothing while it runs
  ChildEnd wait();

 private:
  void take(int status);

  pid_t id_ = -1;
  std::optional<ChildEnd> end_;
};

}  // namespace hinge::support
