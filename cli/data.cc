// hinge data: looks at data sets. `hinge data check` decodes every image before a training does; `hinge data export` writes a split of the
// text of a translation as plain files, to be translated and scored.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "data/check.h"
#include "data/error.h"
#include "data/formats.h"
#include "data/source.h"
#include "tasks/task.h"

namespace hinge::cli {
namespace {

struct DataOptions {
  std::string format, path, split, threads;
  bool json = false;
};

// One split; a file without which it cannot be opened is its only bad one.
struct Checked {
  std::string split;
  data::CheckReport report;
};

Checked check_split(const data::DataSource& source, int threads) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  Checked checked{source.split, {}};
  try {
    const std::unique_ptr<data::ImageSet> set = data::open_images(source);
    checked.report = data::check(*set, threads, [&](int64_t done) {
      if (terminal) fmt::print(stderr, "\r\033[K{}: {} of {} images", source.split, done, set->size());
    });
  } catch (const data::DataError& error) {
    checked.report.bad.push_back({error.file, error.problem});
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
  return checked;
}

std::string sizes_text(const data::CheckReport& report) {
  if (report.sizes.empty()) return "none";
  if (report.sizes.size() == 1) return fmt::format("all {}x{}", report.sizes.begin()->first.first, report.sizes.begin()->first.second);
  std::pair<int, int> least = report.sizes.begin()->first, most = least;
  for (const auto& [size, count] : report.sizes) {
    least = {std::min(least.first, size.first), std::min(least.second, size.second)};
    most = {std::max(most.first, size.first), std::max(most.second, size.second)};
  }
  return fmt::format("{} different, height {} to {}, width {} to {}", report.sizes.size(), least.first, most.first, least.second,
                     most.second);
}

void print(const Checked& checked) {
  const data::CheckReport& report = checked.report;
  fmt::print("{}\n", checked.split);
  fmt::print("  {:<9}{}\n", "images", report.images);
  fmt::print("  {:<9}{}{}\n", "classes", report.classes,
             report.empty_classes > 0 ? fmt::format(", {} of them without images", report.empty_classes) : "");
  fmt::print("  {:<9}{}\n", "sizes", sizes_text(report));
  fmt::print("  {:<9}{}\n", "bad", report.bad.size());
  for (const data::BadImage& bad : report.bad) fmt::print("    {}: {}\n", bad.name, bad.problem);
}

nlohmann::json to_json(const Checked& checked) {
  nlohmann::json sizes = nlohmann::json::array(), bad = nlohmann::json::array();
  for (const auto& [size, count] : checked.report.sizes)
    sizes.push_back({{"height", size.first}, {"width", size.second}, {"images", count}});
  for (const data::BadImage& image : checked.report.bad) bad.push_back({{"file", image.name}, {"problem", image.problem}});
  return {{"split", checked.split},
          {"images", checked.report.images},
          {"classes", checked.report.classes},
          {"empty_classes", checked.report.empty_classes},
          {"sizes", sizes},
          {"bad", bad}};
}

// Mistakes on the command line, told apart from bad files.
void require_usage(const DataOptions& options) {
  try {
    const data::Format& format = data::find_format(options.format);
    if (options.path.empty() && format.needs_path())
      throw UsageError(fmt::format("--format {} needs --path: give the folder of the set", options.format));
    if (!options.split.empty()) data::parse_split(options.split);
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

int check(const DataOptions& options) {
  require_usage(options);
  data::DataSource source{.format = options.format, .path = options.path};
  const int threads = parse_threads(options.threads);
  std::vector<std::string> splits = data::splits(source);
  if (!options.split.empty()) splits = {options.split};
  nlohmann::json json = nlohmann::json::array();
  size_t bad = 0;
  for (const std::string& split : splits) {
    source.split = split;
    const Checked checked = check_split(source, threads);
    bad += checked.report.bad.size();
    if (options.json)
      json.push_back(to_json(checked));
    else
      print(checked);
  }
  if (options.json) fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return bad > 0 ? 1 : 0;
}

const tasks::Task& exported_task(const std::string& from) {
  if (std::filesystem::is_directory(from)) return tasks::of_run(from);
  return tasks::of_config(from);
}

int export_split(const tasks::ExportRequest& request) {
  const tasks::Task& task = exported_task(request.from);
  if (!task.export_data) {
    std::vector<std::string> able;
    for (const tasks::Task* other : tasks::all())
      if (other->export_data) able.push_back(other->name);
    throw std::runtime_error(
        fmt::format("'{}' is of the task {}, which has no data to export; hinge data export takes a config or a run of {}", request.from,
                    task.name, fmt::join(able, " or ")));
  }
  fmt::print("{}\n", task.export_data(request));
  return 0;
}

void add_export(Command parent) {
  Command command = parent.subcommand("export", "Export a split of a translation corpus as two text files, one sentence per line");
  auto options = std::make_shared<tasks::ExportRequest>();
  options->split = "test";
  const char *what = "What to write", *output = "Output";
  command.option("from", options->from, "CONFIG|RUN", "A translation config, or a run: its split is the one it was trained with")
      .required();
  command.option("--split", options->split, "NAME", "train, valid or test (default: test)").group(what);
  command.option("--set", options->changes, "KEY=VALUE", "Change a key of the config, e.g. --set data.path=FOLDER")
      .group(what)
      .one_at_a_time();
  command.option("--out", options->out, "PREFIX", "The files are PREFIX.LANGUAGE, such as PREFIX.en and PREFIX.de")
      .group(output)
      .required();
  command.footer(
      "Existing files are not replaced. With data.document_tokens, blank lines separate documents.\n"
      "For a run, pairs whose source is too long for its model are skipped.\n"
      "To score a run: hinge translate RUN PREFIX.en --out FILE, then hinge score FILE PREFIX.de; of documents, both with --document.");
  command.run([options] { return export_split(*options); });
}

}  // namespace

void add_data(Command parent) {
  Command data = parent.subcommand("data", "Check data sets, and export parts of them");
  data.require_subcommand();
  add_export(data);
  Command command = data.subcommand("check", "Decode every image of a data set and name the bad files");
  auto options = std::make_shared<DataOptions>();
  const char *what = "What to check", *how = "How to check", *output = "Output";
  command.option("--format", options->format, "NAME", "Format of the set, one of those below").group(what).required();
  command.option("--path", options->path, "FOLDER", "Folder of the set; some formats need none").group(what);
  command
      .option("--split", options->split, "NAME",
              "One split or part, e.g. train or train[:90%] (default: all; of folders train, val, validation and test)")
      .group(what);
  command.option("--threads", options->threads, "N", kThreadsMeaning).group(how);
  command.flag("--json", options->json, "Print JSON instead of text").group(output);
  std::string formats = "Formats:\n";
  for (const data::Format& format : data::format_table())
    formats += fmt::format("  {:<14}{}{}\n", format.name, format.help, format.needs_path() ? "" : "; needs no --path");
  command.footer(formats + "Exit code: 0 all images can be decoded, 1 some cannot.");
  command.run([options] { return check(*options); });
}

}  // namespace hinge::cli
