#include "distributed/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "support/child_process.h"

namespace hinge::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using support::ChildEnd;

constexpr int kPeerEnded = 3;  // exit code of a process that ended because another did

// One of the two streams of a process, cut into lines.
class Stream {
 public:
  Stream() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    reading_ = ends[0], writing_ = ends[1];
    ::fcntl(reading_, F_SETFL, O_NONBLOCK);
  }
  ~Stream() {
    close(reading_);
    close(writing_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int reading() const { return reading_; }  // -1 once all is read
  int writing() const { return writing_; }
  void started() { close(writing_); }
  const std::string& last_line() const { return last_line_; }

  void read(const std::string& prefix, const std::function<void(std::string_view)>& write) {
    char bytes[65536];
    for (;;) {
      const ssize_t got = ::read(reading_, bytes, sizeof bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got > 0) {
        text_.append(bytes, static_cast<size_t>(got));
        continue;
      }
      if (!text_.empty()) text_ += '\n';  // the last line may have no end
      close(reading_);
      break;
    }
    size_t begin = 0;
    for (size_t end; (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      last_line_ = text_.substr(begin, end - begin);
      write(prefix + last_line_ + "\n");
    }
    text_.erase(0, begin);
  }

 private:
  static void close(int& descriptor) {
    if (descriptor >= 0) ::close(descriptor);
    descriptor = -1;
  }

  int reading_ = -1, writing_ = -1;
  std::string text_, last_line_;
};

struct Process {
  int rank = 0;
  Stream out, err;
  std::optional<support::ChildProcess> child;
  std::optional<ChildEnd> end;
};

bool failed(const ChildEnd& end) { return end.code != 0 && end.code != 130; }

std::string how_it_ended(const Process& process) {
  if (process.end->signal != 0) return fmt::format("was killed by signal {} ({})", process.end->signal, ::strsignal(process.end->signal));
  std::string reason = process.err.last_line();
  if (constexpr std::string_view kName = "hinge: "; reason.starts_with(kName)) reason.erase(0, kName.size());
  return fmt::format("ended with code {}{}", process.end->code, reason.empty() ? "" : ": " + reason);
}

}  // namespace

int free_port() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool found = descriptor >= 0 && ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (descriptor >= 0) ::close(descriptor);
  if (!found) throw std::runtime_error("no port is free on this machine");
  return ntohs(address.sin_port) > 65000 ? ntohs(address.sin_port) - 1000 : ntohs(address.sin_port);
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

int launch(const Launch& what, const std::atomic<bool>& stop, const LaunchOutput& output) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int local = 0; local < what.processes; ++local) {
    processes.push_back(std::make_unique<Process>());
    Process& process = *processes.back();
    process.rank = what.machine * what.processes + local;
    process.child.emplace(support::ChildCommand{.program = what.program,
                                                .arguments = what.arguments,
                                                .environment = {{"RANK", std::to_string(process.rank)},
                                                                {"WORLD_SIZE", std::to_string(what.processes * what.machines)},
                                                                {"LOCAL_RANK", std::to_string(local)},
                                                                {"LOCAL_WORLD_SIZE", std::to_string(what.processes)},
                                                                {"MASTER_ADDR", what.master_address},
                                                                {"MASTER_PORT", std::to_string(what.master_port)},
                                                                {"HINGE_TOKEN", what.token}},
                                                .out_descriptor = process.out.writing(),
                                                .err_descriptor = process.err.writing()});
    process.out.started(), process.err.started();
  }

  const auto all_ended = [&] {
    for (const auto& process : processes)
      if (!process->end || process->out.reading() >= 0 || process->err.reading() >= 0) return false;
    return true;
  };
  const auto send = [&](int signal) {
    for (const auto& process : processes)
      if (!process->end) process->child->send(signal);
  };
  const Process* culprit = nullptr;
  std::optional<Clock::time_point> failed_at;
  int signal = SIGTERM;  // to be sent next
  bool asked = false;
  while (!all_ended()) {
    std::vector<pollfd> descriptors;
    for (const auto& process : processes)
      for (const Stream* stream : {&process->out, &process->err}) descriptors.push_back({stream->reading(), POLLIN, 0});
    ::poll(descriptors.data(), descriptors.size(), 50);
    for (const auto& process : processes) {
      const std::string prefix = fmt::format("[{}] ", process->rank);
      if (process->out.reading() >= 0) process->out.read(prefix, output.out);
      if (process->err.reading() >= 0) process->err.read(prefix, output.err);
      if (process->end || !(process->end = process->child->poll())) continue;
      if (!failed(*process->end)) continue;
      if (!failed_at) failed_at = Clock::now();
      // Others that ended with it may be seen first; their code says so.
      const bool by_itself = process->end->code != kPeerEnded;
      if (culprit == nullptr || (by_itself && culprit->end->code == kPeerEnded)) culprit = process.get();
    }
    if (stop && !asked) asked = true, send(SIGINT);
    const auto waited = failed_at ? std::chrono::duration<double>(Clock::now() - *failed_at).count() : 0;
    if (waited > kGraceSeconds) {
      send(signal);
      signal = SIGKILL, failed_at = Clock::now() - std::chrono::seconds(static_cast<int>(kGraceSeconds) - 5);
    }
  }
  if (culprit != nullptr) {
    output.err(fmt::format("hinge launch: rank {} {}; the run has ended\n", culprit->rank, how_it_ended(*culprit)));
    return culprit->end->code > 0 ? culprit->end->code : 1;
  }
  for (const auto& process : processes)
    if (process->end->code != 0) return process->end->code;
  return 0;
}

}  // namespace hinge::distributed
