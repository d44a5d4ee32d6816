#include "cli/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace hinge::cli {
namespace {

std::atomic<bool> stop_flag{false};
std::atomic<const char*> stop_notice{""};

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// The first Ctrl-C asks; the second ends the process. A closed terminal asks, too, perhaps more than once: it takes the readers of what the
// command says with it, which is no reason to end at once.
extern "C" void ask_to_stop(int) {
  const int reason = errno;
  stop_flag = true;
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  for (const char* part : {"\nhinge: ", stop_notice.load(), "; Ctrl-C again ends at once\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  errno = reason;
}

}  // namespace

void stop_when_asked(const char* notice) {
  stop_notice = notice;
  // What was ignored at the start stays so: SIGHUP under nohup, SIGINT in the background of a script, whose Ctrl-C is for others.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) std::signal(signal, ask_to_stop);
}

const std::atomic<bool>& stop_asked() { return stop_flag; }

}  // namespace hinge::cli
