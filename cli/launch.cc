// hinge launch: starts the processes of a run on this machine, or says how to start them on several.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "distributed/launcher.h"

namespace hinge::cli {
namespace {

struct LaunchOptions {
  std::string processes = "1", nodes, node, port;
  std::vector<std::string> command;
};

constexpr int64_t kMostProcesses = 4096;
constexpr const char* kPort = "29400";

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
                                          std::string::npos;
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What to type on each machine.
int print_commands(const LaunchOptions& options, const std::vector<std::string>& hosts) {
  const std::string token = distributed::random_token();
  std::vector<std::string> words;
  for (const std::string& word : options.command) words.push_back(shell_word(word));
  for (size_t i = 0; i < hosts.size(); ++i)
    fmt::print("{}:\n  HINGE_TOKEN={} hinge launch -n {} --nodes {} --node {} --port {} -- {}\n", hosts[i], token, options.processes,
               options.nodes, i, options.port.empty() ? kPort : options.port, fmt::join(words, " "));
  return 0;
}

int launch(const LaunchOptions& options) {
  distributed::Launch what;
  what.program = "/proc/self/exe";
  what.processes = static_cast<int>(parse_whole("-n", options.processes, 1, kMostProcesses));
  constexpr std::array kCommands = {"train", "eval", "translate", "bench"};
  if (options.command.empty() || std::find(kCommands.begin(), kCommands.end(), options.command[0]) == kCommands.end())
    throw UsageError(
        "hinge launch takes the command of the processes behind --, train, eval, translate or bench sequence: "
        "hinge launch -n 2 -- train CONFIG");
  what.arguments = options.command;
  if (options.nodes.empty()) {
    if (!options.node.empty() || !options.port.empty()) throw UsageError("--node and --port go with --nodes HOST,HOST");
    what.master_port = distributed::free_port();
    what.token = distributed::random_token();
  } else {
    const std::vector<std::string> hosts = parse_list("--nodes", options.nodes);
    const int64_t port = parse_whole("--port", options.port.empty() ? kPort : options.port, 1, 65000);
    if (options.node.empty()) return print_commands(options, hosts);
    const char* token = std::getenv("HINGE_TOKEN");
    if (token == nullptr || *token == '\0')
      throw UsageError("HINGE_TOKEN is not set: type what hinge launch --nodes prints without --node, the same token on all machines");
    what.machine = static_cast<int>(parse_whole("--node", options.node, 0, std::ssize(hosts) - 1));
    what.machines = static_cast<int>(hosts.size());
    what.master_address = hosts[0], what.master_port = static_cast<int>(port), what.token = token;
  }
  stop_when_asked("asking all processes to stop");
  const auto writer = [](FILE* file) {
    return [file](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), file);
      std::fflush(file);
    };
  };
  return distributed::launch(what, stop_asked(), {writer(stdout), writer(stderr)});
}

}  // namespace

void add_launch(Command parent) {
  auto options = std::make_shared<LaunchOptions>();
  Command command = parent.subcommand("launch", "Train, evaluate or translate with several processes, on this machine or on several");
  command.option("-n,--processes", options->processes, "N", "Processes on this machine; on each, with --nodes (default: 1)");
  command.option("--nodes", options->nodes, "HOST,HOST", "The machines, that of rank 0 first: print the command for each, and exit");
  command.option("--node", options->node, "I", "Start the processes of machine I of --nodes, counted from 0");
  command.option("--port", options->port, "PORT",
                 fmt::format("The machines meet at one of the 16 ports after this one (default: {})", kPort));
  command.option("command", options->command, "COMMAND", "After --: the command of each process, e.g. train CONFIG --out RUN");
  command.run([options] { return launch(*options); });
}

}  // namespace hinge::cli
