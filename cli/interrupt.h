// Ctrl-C in commands that work for long: the first asks the command to end in good order, the second ends the process.
#pragma once

#include <atomic>

namespace hinge::cli {

// From here on Ctrl-C, SIGTERM and a closed terminal set stop_asked() and say "hinge: <notice>; Ctrl-C again ends at once", but for those
// that the process was started to ignore. A literal: it is read when the signal comes.
void stop_when_asked(const char* notice);

// Whether to end soon. Never set before stop_when_asked().
const std::atomic<bool>& stop_asked();

// The exit code of a command that was stopped and has not done what it was to do: 128 + SIGINT, as shells have it.
inline constexpr int kStoppedCode = 130;

}  // namespace hinge::cli
