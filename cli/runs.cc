// hinge runs: the runs in a folder as a table.
#include "experiment/runs.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace hinge::cli {
namespace {

int list_runs(const std::string& folder) {
  const std::vector<experiment::RunSummary> runs = experiment::find_runs(folder);
  if (runs.empty()) {
    fmt::print("No runs in {}: 'hinge train CONFIG' makes them under runs.\n", folder);
    return 0;
  }
  fmt::print("{}", experiment::table_text(experiment::run_table(runs)));
  for (const experiment::RunSummary& run : runs) {
    if (!run.status.message.empty()) fmt::print("{}: {}\n", run.name, run.status.message);
    for (const std::string& problem : run.problems) fmt::print(stderr, "{}: {}\n", run.name, problem);
  }
  return 0;
}

}  // namespace

void add_runs(Command parent) {
  auto folder = std::make_shared<std::string>("runs");
  Command command = parent.subcommand("runs", "List runs: state, score, speed, and the config keys in which they differ");
  command.option("folder", *folder, "FOLDER", "Folder that holds runs, or one run (default: runs)");
  command.run([folder] { return list_runs(*folder); });
}

}  // namespace hinge::cli
