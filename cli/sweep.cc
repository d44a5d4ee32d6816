// hinge sweep: trains every point of a sweep, several side by side, and keeps what they come to in one file.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bench/machine.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "experiment/sweep_runner.h"
#include "hinge/kernels/cpu.h"
#include "support/progress.h"
#include "support/threads.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

struct SweepCommand {
  std::string sweep, out, points, jobs, threads = "1";
  bool drop_stale = false;
};

// "3/8": the third of eight parts.
void parse_part(const std::string& text, experiment::SweepOptions& options) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) throw UsageError(fmt::format("--points '{}': write PART/PARTS, such as 3/8", text));
  options.parts = parse_whole("--points", text.substr(slash + 1), 1, 1000000);
  options.part = parse_whole("--points", text.substr(0, slash), 1, options.parts);
}

int run(const SweepCommand& given) {
  const experiment::Sweep sweep = experiment::read_sweep(given.sweep);
  experiment::SweepOptions options;
  options.folder = given.out.empty() ? experiment::default_folder(sweep) : given.out;
  options.threads = static_cast<int>(parse_whole("--threads", given.threads, 1, 1024));
  options.jobs = given.jobs.empty() ? std::max(1, support::default_threads() / options.threads)
                                    : static_cast<int>(parse_whole("--jobs", given.jobs, 1, 1024));
  if (!given.points.empty()) parse_part(given.points, options);
  options.drop_stale = given.drop_stale;
  options.program = "/proc/self/exe";  // this very program, also after a new one was put in its place
  options.version = HINGE_VERSION;
  options.machine = fmt::format("{}, {}, {} thread{}", bench::probe_cpu().model, kernels::simd_target(), options.threads,
                                options.threads == 1 ? "" : "s");
  const tasks::Task& task = tasks::of_config(sweep.base);
  options.keys = [&](const std::vector<std::string>& changes) { return task.changed_keys({sweep.base, changes}); };

  stop_when_asked("stopping: the runs save what is done");
  const experiment::SweepOutcome outcome = experiment::run_sweep(sweep, options, stop_asked(), support::ProgressOutput::standard_error());
  const std::string counts = fmt::format("{} done, {} diverged, {} failed", outcome.done, outcome.diverged, outcome.failed);
  if (outcome.left > 0) {
    fmt::print("Stopped: {}, {} left. Go on with the same command.\n", counts, outcome.left);
    return kStoppedCode;
  }
  fmt::print("{}: {}. The results: {}\n", outcome.failed > 0 ? "Ended" : "Done", counts, experiment::results_path(sweep, options.folder));
  return outcome.failed > 0 ? 1 : 0;
}

}  // namespace

void add_sweep(Command parent) {
  auto options = std::make_shared<SweepCommand>();
  Command command = parent.subcommand("sweep", "Train a config with every combination of some values, and measure each run");
  command.option("sweep", options->sweep, "SWEEP", "A TOML file, such as configs/sweeps/figure2.toml").required();
  command.option("--out", options->out, "FOLDER", "Folder for the runs; several machines can share it (default: runs/sweeps/NAME)");
  command.option("--points", options->points, "PART/PARTS", "Run only a part of the points: 3/8 is the third of eight parts");
  command.option("--jobs", options->jobs, "N",
                 "Points to run side by side (default: one per core, or as many as --threads leaves room for)");
  command.option("--threads", options->threads, "N", "Threads of each point (default: 1)");
  command.flag("--drop-stale", options->drop_stale, "Remove results whose config has changed, and run their points again");
  command.footer(
      "Finished points are never run again, and half-finished ones go on: repeat the command after Ctrl-C, a crash or a change of the "
      "sweep.\nA point that diverges is a result. One that fails is recorded, and is tried again by the next call. Exit code 1: some "
      "failed.\ndocs/sweeps.md describes the file.");
  command.run([options] { return run(*options); });
}

}  // namespace hinge::cli
