#include "cli/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace hinge::cli {
namespace {

std::atomic<bool> stop_flag{false};
std::atomic<const char*> stop_notice{""};

// The first Ctrl-C asks; the second ends the process. A closed terminal asks, too, perhaps more than once: it takes the readers of what the
// command says with it, which is no reason to end at once.
extern "C" void ask_to_stop(int) {
  const int reason = errno;
  stop_flag = true;
  std::signal(SIGINT, SIG_DFL), std::signal(SIGTERM, SIG_DFL), std::signal(SIGPIPE, SIG_IGN);
  for (const char* part : {"\nhinge: ", stop_notice.load(), "; Ctrl-C again ends at once\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  errno = reason;
}

}  // namespace

void stop_when_asked(const char* notice) {
  stop_notice = notice;
  // What was ignored at the start stays so: SIGHUP under nohup, SIGINT in the background of a script, whose Ctrl-C is for others.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, ask_to_stop) == SIG_IGN) std::signal(signal, SIG_IGN);
}

const std::atomic<bool>& stop_asked() { return stop_flag; }

}  // namespace hinge::cli
