// The threads of this process: how many by default, and starting several at once.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace hinge::support {

// The one thread policy, for every command: OMP_NUM_THREADS if it is set (the first number of a list), else the cores that this process may
// use. At least 1.
int default_threads();

// The cores that this process may use, which can be fewer than the machine has: those of its affinity mask, or what its container may use
// of them, rounded up.
int usable_cores();

// Starts `count` threads, which call `work` with their number. If the system refuses one, calls `stop`, which must make `work` return,
// waits for the threads that were started and throws std::runtime_error; `advice` says how to ask for fewer: "set data.threads lower".
std::vector<std::jthread> start_threads(int count, const std::function<void(int)>& work, const std::function<void()>& stop,
                                        const std::string& advice);

}  // namespace hinge::support
