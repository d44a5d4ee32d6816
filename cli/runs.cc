// hinge runs: the runs in a folder as a table.
#include "experiment/runs.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

constexpr const char* kDefaultFolder = "runs";

// `given`: empty for the folder that hinge train makes runs in.
int list_runs(const std::string& given) {
  if (given.empty() && !std::filesystem::exists(kDefaultFolder)) {
    fmt::print("No runs yet: 'hinge train CONFIG' makes them.\n");
    return 0;
  }
  const std::string folder = given.empty() ? kDefaultFolder : given;
  const std::vector<experiment::RunSummary> runs = experiment::find_runs(folder);
  if (runs.empty()) {
    fmt::print("No runs in {}: 'hinge train CONFIG' makes them under runs.\n", folder);
    return 0;
  }
  fmt::print("{}", experiment::table_text(experiment::run_table(runs, tasks::score_format)));
  for (const experiment::RunSummary& run : runs) {
    if (!run.status.message.empty()) fmt::print("{}: {}\n", run.name, run.status.message);
    for (const std::string& problem : run.problems) fmt::print(stderr, "{}: {}\n", run.name, problem);
  }
  return 0;
}

}  // namespace

void add_runs(Command parent) {
  auto folder = std::make_shared<std::string>();
  Command command = parent.subcommand("runs", "List runs: state, score, speed, and the config keys in which they differ");
  command.option("folder", *folder, "FOLDER", "Folder that holds runs, or one run (default: runs)");
  command.run([folder] { return list_runs(*folder); });
}

}  // namespace hinge::cli
