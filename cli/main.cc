// The hinge command: reads the command line, runs one command, turns every mistake into one message.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2;

int fail(int code, const char* message) noexcept {
  std::fprintf(stderr, "hinge: %s\n", message);
  return code;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Transformers without softmax: fused point-wise attention on CPUs.", "hinge");
  app.set_version_flag("--version", "hinge " HINGE_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.get_formatter()->column_width(36);
  app.require_subcommand(1);
  app.footer("'hinge COMMAND --help' tells more. Exit code: 0 done, 1 failed, 2 wrong usage.");

  Run run;
  add_doctor(app, run);
  add_data(app, run);
  add_train(app, run);
  add_runs(app, run);
  add_report(app, run);
  add_eval(app, run);
  add_predict(app, run);
  add_attend(app, run);
  add_probe(app, run);
  add_weights(app, run);
  add_bench(app, run);

  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    fmt::print("{}", app.help());
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw UsageError(explain_mistake(app, arguments).value_or(error.what()));
  }
  return run();
}

}  // namespace
}  // namespace hinge::cli

int main(int argc, char** argv) {
  using namespace hinge::cli;
  try {
    return parse_and_run(argc, argv);
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "not enough memory: choose a smaller problem");
  } catch (const std::exception& error) {
    return fail(kFailed, error.what());
  }
}
