#include "support/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "support/atomic_file.h"

namespace hinge::support {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int open_to_append(const std::string& path, int descriptor_instead) {
  if (descriptor_instead >= 0) return ::fcntl(descriptor_instead, F_DUPFD_CLOEXEC, 0);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) throw_file_error("open", path);
  return descriptor;
}

}  // namespace

ChildProcess::ChildProcess(const ChildCommand& command) {
  // Between fork and exec nothing may take memory: another thread may have held the allocator's lock.
  std::vector<std::string> arguments = {command.program}, environment;
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const auto replaced = [&](const auto& set) { return set.first == name; };
    if (std::none_of(command.environment.begin(), command.environment.end(), replaced)) environment.push_back(text);
  }
  for (const auto& [name, value] : command.environment) environment.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers_to(arguments), envp = pointers_to(environment);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = open_to_append(command.out, command.out_descriptor);
  const int err = open_to_append(command.err, command.err_descriptor);
  const pid_t parent = ::getpid();
  id_ = ::fork();
  if (id_ == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // it ended before the call above
    std::signal(SIGTERM, SIG_DFL);
    if (::dup2(in, STDIN_FILENO) >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 && ::dup2(err, STDERR_FILENO) >= 0)
      ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  const int reason = errno;
  for (const int descriptor : {in, out, err}) ::close(descriptor);
  if (id_ < 0) throw std::runtime_error(fmt::format("cannot start {}: {}", command.program, std::strerror(reason)));
}

ChildProcess::~ChildProcess() {
  if (id_ < 0 || poll()) return;
  send(SIGTERM);
  wait();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : id_(std::exchange(other.id_, -1)), end_(other.end_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(end_, other.end_);
  return *this;
}

void ChildProcess::send(int signal) const {
  if (id_ > 0 && !end_) ::kill(id_, signal);
}

void ChildProcess::take(int status) {
  end_ = WIFEXITED(status) ? ChildEnd{WEXITSTATUS(status), 0} : ChildEnd{-1, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

std::optional<ChildEnd> ChildProcess::poll() {
  int status = 0;
  if (!end_ && ::waitpid(id_, &status, WNOHANG) == id_) take(status);
  return end_;
}

ChildEnd ChildProcess::wait() {
  int status = 0;
  while (!end_)
    if (::waitpid(id_, &status, 0) == id_)
      take(status);
    else if (errno != EINTR)
      end_ = ChildEnd{};
  return *end_;
}

}  // namespace hinge::support
