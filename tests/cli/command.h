// The hinge program as a user runs it. HINGE_COMMAND is its path.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace hinge_command {

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Result {
  int code = -1;
  std::string out, err;
};

// What it prints goes through the files "out" and "err" of `folder`. A "<" in the arguments goes before `in`.
inline Result run(const std::filesystem::path& folder, const std::string& arguments, const std::string& in = "/dev/null") {
  const std::filesystem::path out = folder / "out", err = folder / "err";
  const std::string command = std::string(HINGE_COMMAND) + " <" + in + " " + arguments + " >" + out.string() + " 2>" + err.string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

struct Ended {
  int code = -1;  // -1: by a signal
  int signal = 0;
  std::string out, err;
};

// A started hinge, whose output goes to the files `out` and `err`; at_start runs in the child before the program.
class Process {
 public:
  Process(
      std::string out, std::string err, const std::vector<std::string>& arguments, const std::function<void()>& at_start = [] {})
      : out_(std::move(out)), err_(std::move(err)) {
    std::vector<std::string> words = {HINGE_COMMAND};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    id_ = ::fork();
    if (id_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing behind
    for (const auto& [file, descriptor] : {std::pair(out_, STDOUT_FILENO), std::pair(err_, STDERR_FILENO)})
      ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), descriptor);
    for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);  // scripts start what runs in the background without them
    at_start();
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  ~Process() {
    if (id_ > 0 && !ended_) send(SIGKILL), wait();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  void send(int signal) const { ::kill(id_, signal); }
  void send_to_group(int signal) const { ::kill(-id_, signal); }  // of one that at_start has given a group of its own
  bool ended() {
    if (!ended_ && ::waitpid(id_, &status_, WNOHANG) == id_) ended_ = true;
    return ended_;
  }
  Ended wait() {
    if (!ended_) ::waitpid(id_, &status_, 0), ended_ = true;
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, WIFSIGNALED(status_) ? WTERMSIG(status_) : 0, read_file(out_), read_file(err_)};
  }

 private:
  std::string out_, err_;
  pid_t id_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace hinge_command
