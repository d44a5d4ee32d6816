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

// Compares all checkpoints with their checksums. Exits with 1 if one is damaged.
int verify_runs(const std::vector<experiment::RunSummary>& runs) {
  size_t damaged = 0;
  for (const experiment::RunSummary& run : runs) {
    const train::Verification found = train::verify_run(run.folder);
    std::vector<std::string> problems = run.problems;
    problems.insert(problems.end(), found.damaged.begin(), found.damaged.end());
    fmt::print("{}: {} checkpoint{}, {:.1f} MB read: {}\n", run.name, found.checkpoints, found.checkpoints == 1 ? "" : "s",
               static_cast<double>(found.bytes) / 0x1p20, problems.empty() ? "sound" : "damaged");
    for (const std::string& problem : problems) fmt::print(stderr, "{}: {}\n", run.name, problem);
    if (!found.unchecked.empty())
      fmt::print("{}: {} of its files have no checksums: an earlier version wrote them\n", run.name, found.unchecked.size());
    damaged += problems.empty() ? 0 : 1;
  }
  if (damaged > 0) fmt::print(stderr, "{} of {} runs are damaged; commands use the last intact checkpoint\n", damaged, runs.size());
  return damaged == 0 ? 0 : 1;
}

// `given`: empty for the folder that hinge train makes runs in.
int list_runs(const std::string& given, bool verify) {
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
  if (verify) return verify_runs(runs);
  fmt::print("{}", experiment::table_text(experiment::run_table(runs, tasks::score_format)));
  for (const experiment::RunSummary& run : runs) {
    if (!run.status.message.empty()) fmt::print("{}: {}\n", run.name, run.status.message);
    for (const std::string& problem : run.problems) fmt::print(stderr, "{}: {}\n", run.name, problem);
  }
  return 0;
}

}  // namespace

void add_runs(Command parent) {
  struct Options {
    std::string folder;
    bool verify = false;
  };
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand("runs", "List runs: state, score, speed, and the config keys in which they differ");
  command.option("folder", options->folder, "FOLDER", "Folder that holds runs, or one run (default: runs)");
  command.flag("--verify", options->verify, "Read all checkpoints and compare them with their checksums");
  command.run([options] { return list_runs(options->folder, options->verify); });
}

}  // namespace hinge::cli
