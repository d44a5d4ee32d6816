// hinge report: compares runs, or shows the results of a sweep, in one self-contained HTML page.
#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "experiment/html_report.h"
#include "experiment/sweep_report.h"
#include "experiment/sweep_runner.h"
#include "support/atomic_file.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out, title;
  std::string results, figures;       // of a sweep
  std::vector<std::string> markdown;  // of a sweep
};

constexpr const char* kDefaultPage = "report.html";

int report_runs(const ReportOptions& options) {
  if (!options.results.empty() || !options.figures.empty() || !options.markdown.empty())
    throw UsageError("--results, --figures and --markdown belong to a sweep: hinge report SWEEP.toml");
  std::vector<experiment::RunSummary> runs;
  for (const std::string& folder : options.runs) {
    std::vector<experiment::RunSummary> found = experiment::find_runs(folder);
    if (found.empty()) throw std::runtime_error(fmt::format("'{}' holds no run; 'hinge train CONFIG' makes them", folder));
    std::move(found.begin(), found.end(), std::back_inserter(runs));
  }
  support::AtomicFile file(options.out.empty() ? kDefaultPage : options.out);
  file.commit(experiment::render_html(tasks::compare(std::move(runs), options.title)));
  fmt::print("The report: {}\n", file.path());
  return 0;
}

// Everything is made before anything is written.
int report_sweep(const ReportOptions& options) {
  experiment::Sweep sweep = experiment::read_sweep(options.runs[0]);
  if (!options.title.empty()) sweep.title = options.title;
  const std::string results =
      options.results.empty() ? experiment::results_path(sweep, experiment::default_folder(sweep)) : options.results;
  if (!fs::exists(results))
    throw std::runtime_error(fmt::format("there are no results at '{}'; 'hinge sweep {}' measures them", results, sweep.file));
  const experiment::SweepData data = experiment::gather(std::move(sweep), experiment::read_results(results));

  std::vector<std::pair<std::string, std::string>> files;
  if (!options.out.empty() || (options.figures.empty() && options.markdown.empty()))
    files.emplace_back(options.out.empty() ? kDefaultPage : options.out, experiment::render_html(data));
  if (!options.figures.empty())
    for (auto& [name, svg] : experiment::figure_files(data))
      files.emplace_back((fs::path(options.figures) / name).string(), std::move(svg));
  if (!options.markdown.empty())
    for (auto& file : experiment::markdown_files(data, options.markdown)) files.push_back(std::move(file));
  if (!options.figures.empty()) support::make_folders(options.figures);
  for (const auto& [path, content] : files) support::AtomicFile(path).commit(content);

  fmt::print("{}\n", experiment::state_text(data));
  for (const auto& [path, content] : files) fmt::print("Written: {}\n", path);
  return 0;
}

int report(const ReportOptions& options) {
  const auto is_sweep = [](const std::string& path) { return fs::path(path).extension() == ".toml" && !fs::is_directory(path); };
  for (const std::string& path : options.runs)
    if (is_sweep(path) && options.runs.size() > 1) throw UsageError(fmt::format("'{}' is a sweep: give it alone, or only runs", path));
  return is_sweep(options.runs[0]) ? report_sweep(options) : report_runs(options);
}

}  // namespace

void add_report(Command parent) {
  auto options = std::make_shared<ReportOptions>();
  Command command = parent.subcommand(
      "report",
      "Compare runs in one HTML page (table, curves, predictions, attention maps), or show the results of a sweep (figures, tables)");
  command.option("run", options->runs, "RUN", "Runs, or folders that hold runs; or one sweep, configs/sweeps/NAME.toml").required();
  command.option("--out", options->out, "FILE", "Page to write (default: report.html; none with --figures or --markdown)");
  command.option("--title", options->title, "TEXT", "Title of the page");
  command.option("--results", options->results, "FILE", "Results to draw (default: where hinge sweep puts them)").group("Of a sweep");
  command.option("--figures", options->figures, "FOLDER", "Also write each figure to FOLDER/NAME.svg").group("Of a sweep");
  command
      .option("--markdown", options->markdown, "FILE",
              "Also put each table between <!-- begin: table NAME --> and <!-- end: table NAME --> in FILE; can be given again")
      .group("Of a sweep");
  command.run([options] { return report(*options); });
}

}  // namespace hinge::cli
