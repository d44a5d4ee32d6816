// The hinge command: reads the command line, runs one command, turns every mistake into one message.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "distributed/error.h"
#include "ops/error_text.h"
#include "ops/tensor_memory.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2, kPeerEnded = 3;

// A message may quote a file: that can be megabytes, and hold what a terminal takes for orders.
void print_message(std::string_view text) noexcept {
  constexpr size_t kBegin = 1200, kEnd = 400;
  const auto print = [](std::string_view part) {
    for (const char c : part) std::fputc((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F ? '?' : c, stderr);
  };
  std::fputs("hinge: ", stderr);
  if (text.size() > kBegin + kEnd) {
    print(text.substr(0, kBegin));
    std::fputs(" [...] ", stderr);
    text.remove_prefix(text.size() - kEnd);
  }
  print(text);
  std::fputc('\n', stderr);
}

int fail(int code, const char* message) noexcept {
  print_message(message);
  return code;
}

int parse_and_run(int argc, char** argv) {
  CommandLine line("hinge", "Transformers without softmax: fused point-wise attention on CPUs.", HINGE_VERSION);
  Command root = line.root();
  root.require_subcommand();
  root.footer(
      "'hinge COMMAND --help' lists the options of a command. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 another process of the "
      "same run has ended, 130 stopped by Ctrl-C.");
  add_doctor(root);
  add_data(root);
  add_train(root);
  add_launch(root);
  add_sweep(root);
  add_runs(root);
  add_watch(root);
  add_report(root);
  add_eval(root);
  add_predict(root);
  add_attend(root);
  add_probe(root);
  add_weights(root);
  add_translate(root);
  add_analyze(root);
  add_score(root);
  add_bench(root);
  add_completion(root);
  add_manual(root);

  if (argc < 2) {
    fmt::print("{}", line.help());
    return kUsage;
  }
  return line.run(argc, argv);
}

}  // namespace
}  // namespace hinge::cli

int main(int argc, char** argv) {
  using namespace hinge::cli;
  using hinge::tasks::RequestError;
  // Beyond a limit of file sizes (ulimit -f), writing is to fail like on a full disk, not to end the process in the middle of a checkpoint.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    hinge::keep_tensor_memory();
    return parse_and_run(argc, argv);
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const RequestError& error) {
    return fail(kUsage, error.what());
  } catch (const hinge::distributed::PeerError& error) {
    return fail(kPeerEnded, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "not enough memory: choose a smaller problem");
  } catch (const std::exception& error) {
    return fail(kFailed, hinge::error_text(error));
  }
}
