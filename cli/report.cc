// hinge report: compares runs in one self-contained HTML page.
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "experiment/html_report.h"
#include "support/atomic_file.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out = "report.html", title;
};

int report(const ReportOptions& options) {
  std::vector<experiment::RunSummary> runs;
  for (const std::string& folder : options.runs) {
    std::vector<experiment::RunSummary> found = experiment::find_runs(folder);
    if (found.empty()) throw std::runtime_error(fmt::format("'{}' holds no run; 'hinge train CONFIG' makes them", folder));
    std::move(found.begin(), found.end(), std::back_inserter(runs));
  }
  support::AtomicFile file(options.out);
  file.commit(experiment::render_html(tasks::compare(std::move(runs), options.title)));
  fmt::print("The report: {}\n", options.out);
  return 0;
}

}  // namespace

void add_report(Command parent) {
  auto options = std::make_shared<ReportOptions>();
  Command command = parent.subcommand("report", "Compare runs in one HTML page: table, curves, predictions, attention maps");
  command.option("run", options->runs, "RUN", "Runs, or folders that hold runs").required();
  command.option("--out", options->out, "FILE", "File to write (default: report.html)");
  command.option("--title", options->title, "TEXT", "Title of the page");
  command.run([options] { return report(*options); });
}

}  // namespace hinge::cli
