// hinge sweep: trains every point of a sweep, several side by side, and keeps what they come to in one file.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "experiment/sweep_runner.h"
#include "experiment/table.h"
#include "hinge/kernels/cpu.h"
#include "support/progress.h"
#include "support/threads.h"
#include "tasks/sweep_costs.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

struct SweepCommand {
  std::string sweep, out, results, points, jobs, threads = "1";
  std::vector<std::string> changes;
  bool drop_stale = false, dry_run = false;
};

// "3/8": the third of eight parts.
void parse_part(const std::string& text, experiment::SweepOptions& options) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) throw UsageError(fmt::format("--points '{}': write PART/PARTS, such as 3/8", text));
  options.parts = parse_whole("--points", text.substr(slash + 1), 1, 1000000);
  options.part = parse_whole("--points", text.substr(0, slash), 1, options.parts);
}

// ---- --dry-run

std::string hours_text(double seconds) {
  return seconds < 3600 ? fmt::format("{:.2g}", seconds / 3600) : fmt::format("{:.1f}", seconds / 3600);
}

int dry_run(const experiment::Sweep& sweep, const tasks::Task& task, const experiment::SweepOptions& options) {
  const std::vector<experiment::SweepPoint> points = experiment::points_to_run(sweep, options);
  fmt::print("{}: {} points, {} to run{}\n", sweep.name, sweep.points.size(), points.size(),
             options.parts > 1 ? fmt::format(" in part {} of {}", options.part, options.parts) : "");
  if (points.empty()) return 0;
  experiment::Table table{{"points", "with", "parameters", "steps", "FLOPs each", "core-hours each", "core-hours"}, {}};
  double flops = 0, seconds = 0;
  for (const tasks::CostGroup& group : tasks::cost_groups(sweep, task, points)) {
    const auto count = static_cast<double>(group.points.size());
    flops += count * group.cost.flops, seconds += count * group.cost.seconds;
    table.rows.push_back({std::to_string(group.points.size()), group.common(), std::to_string(group.cost.parameters),
                          std::to_string(group.cost.steps), fmt::format("{:.3g}", group.cost.flops), hours_text(group.cost.seconds),
                          hours_text(count * group.cost.seconds)});
  }
  const int cores = options.jobs * options.threads;
  fmt::print("{}Together: {:.3g} FLOPs, {} core-hours of training by this machine's measured speed, {} hours on {} core{}\n",
             experiment::table_text(table), flops, hours_text(seconds), hours_text(seconds / cores), cores, cores == 1 ? "" : "s");
  return 0;
}

// ---- the sweep itself

int run(const SweepCommand& given) {
  experiment::Sweep sweep = experiment::read_sweep(given.sweep);
  if (!given.results.empty()) sweep.results = given.results;
  for (experiment::SweepPoint& point : sweep.points) point.changes.insert(point.changes.end(), given.changes.begin(), given.changes.end());
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

  if (given.dry_run) {
    if (given.drop_stale) throw UsageError("--dry-run changes nothing: use --drop-stale without it first");
    return dry_run(sweep, task, options);
  }
  stop_when_asked("stopping: the runs save what is done");
  const experiment::SweepOutcome outcome = experiment::run_sweep(sweep, options, stop_asked(), support::ProgressOutput::standard_error());
  const std::string counts = fmt::format("{} done, {} diverged, {} failed", outcome.done, outcome.diverged, outcome.failed);
  if (outcome.left > 0) {
    fmt::print("Stopped: {}, {} left. Continue with the same command.\n", counts, outcome.left);
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
  command.option("--results", options->results, "FILE", "File of the results (default: what the sweep says, or FOLDER/NAME.jsonl)");
  command.option("--set", options->changes, "KEY=VALUE", "Change a key of every point's config, e.g. --set data.path=FOLDER")
      .one_at_a_time();
  command.option("--points", options->points, "PART/PARTS", "Run only a part of the points: 3/8 is the third of eight parts");
  command.option("--jobs", options->jobs, "N",
                 "Points to run side by side (default: one per core, or as many as --threads leaves room for)");
  command.option("--threads", options->threads, "N", "Threads of each point (default: 1)");
  command.flag("--drop-stale", options->drop_stale, "Remove results whose config has changed, and run their points again");
  command.flag(
      "--dry-run", options->dry_run,
      "Train nothing: say how many points there are to run, their parameters and FLOPs, and the hours that this machine would take");
  command.footer(
      "Finished points are never run again, and half-finished ones continue: repeat the command after Ctrl-C, a crash or a change of the "
      "sweep.\nA point that diverges is a result. One that fails is recorded, and is tried again by the next call. Exit code 1: some "
      "failed.\ndocs/sweeps.md describes the file.");
  command.run([options] { return run(*options); });
}

}  // namespace hinge::cli
