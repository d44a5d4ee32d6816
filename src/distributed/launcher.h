// Starts the processes of a run on this machine, shows what they say, and ends all when one fails. No torch here.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hinge::distributed {

struct Launch {
  std::string program;
  std::vector<std::string> arguments;
  int processes = 1;                         // on this machine
  int machine = 0, machines = 1;             // this one among all
  std::string master_address = "127.0.0.1";  // of the first
  int master_port = 0;
  std::string token;
};

// A port that is free on this machine now.
int free_port();
// Letters that nobody guesses.
std::string random_token();

struct LaunchOutput {
  std::function<void(std::string_view)> out, err;  // whole lines of the processes, "[1] text\n", and the launcher's own
};

// Returns the exit code: 0 if all have ended well, 130 if they were stopped, else that of the first that failed. When `stop` is set the
// processes are asked to stop. A process that does not end within kGraceSeconds after another has failed is ended.
inline constexpr double kGraceSeconds = 30;
int launch(const Launch& what, const std::atomic<bool>& stop, const LaunchOutput& output);

}  // namespace hinge::distributed
