// hinge watch: all runs and sweeps below a folder, live, in a terminal or on a page.
#include "experiment/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "experiment/markup.h"
#include "experiment/watch_text.h"
#include "support/progress.h"
#include "tasks/task.h"
#include "watch/server.h"
#include "watch/terminal.h"
#include "watch/web_app.h"

namespace hinge::cli {
namespace {

constexpr const char* kWatchedByDefault = "runs";
constexpr int kDefaultPort = 8642;

struct WatchOptions {
  std::string folder, host, port;
  bool once = false, web = false;
};

// ---- text

int print_once(experiment::WatchedFolder& folder) {
  folder.refresh();
  std::vector<const experiment::WatchedRun*> runs;
  size_t archived = 0;
  for (const experiment::WatchedRun& run : folder.runs())
    if (run.archived)
      ++archived;
    else
      runs.push_back(&run);
  for (const experiment::WatchedSweep& sweep : folder.sweeps())
    fmt::print("sweep {}: {}\n", experiment::printable(sweep.id),
               experiment::printable(sweep.problem.empty() ? sweep.state : sweep.problem));
  if (runs.empty())
    fmt::print("No runs in {}: 'hinge train CONFIG' makes them.\n", folder.folder());
  else
    fmt::print("{}", experiment::table_text(experiment::watch_table(runs, tasks::score_format, support::locale_is_utf8())));
  if (archived > 0) fmt::print("{} archived\n", archived);
  for (const experiment::WatchedRun* run : runs) {
    const std::string name = experiment::printable(run->id);
    if (const auto& message = run->summary.status.message; !message.empty()) fmt::print("{}: {}\n", name, experiment::printable(message));
    if (!run->note.empty()) fmt::print("{}: note: {}\n", name, experiment::printable(run->note));
    for (const std::string& line : folder.log(*run, run->is_live() ? 2 : 0)) fmt::print("{}: {}\n", name, experiment::printable(line));
    for (const std::string& problem : run->summary.problems) fmt::print(stderr, "{}: {}\n", name, experiment::printable(problem));
  }
  return 0;
}

// ---- the page

const char* word_of(tasks::ExampleKind kind) {
  switch (kind) {
    case tasks::ExampleKind::picture: return "picture";
    case tasks::ExampleKind::sentence: return "sentence";
    case tasks::ExampleKind::none: break;
  }
  return "";
}

nlohmann::json to_json(const tasks::Example& example) {
  using nlohmann::json;
  json classes = json::array(), numbers = json::array(), pictures = json::array();
  for (const auto& [name, probability] : example.classes) classes.push_back({{"name", name}, {"probability", probability}});
  for (const auto& [name, value] : example.numbers) numbers.push_back({{"name", name}, {"value", value}});
  for (const tasks::ExamplePicture& picture : example.pictures)
    pictures.push_back(
        {{"title", picture.title}, {"src", fmt::format("data:{};base64,{}", picture.type, experiment::base64(picture.bytes))}});
  return {{"step", example.step}, {"text", example.text}, {"classes", classes}, {"numbers", numbers}, {"pictures", pictures}};
}

// Null for a run of no task that there is.
const tasks::Task* task_of(const experiment::RunSummary& run) {
  try {
    return &tasks::of_config(run.config, run.folder);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
}

watch::Services services(const std::string& folder) {
  return {.format_of = tasks::score_format,
          .task =
              [](const experiment::RunSummary& run) {
                const tasks::Task* task = task_of(run);
                return task ? task->name : "";
              },
          .example_kind =
              [](const experiment::RunSummary& run) {
                const tasks::Task* task = task_of(run);
                return std::string(task && task->example ? word_of(task->example_kind) : "");
              },
          .example = [](const std::string& run, const std::string& input) { return to_json(tasks::of_run(run).example(run, input)); },
          .curves =
              [](const experiment::RunSummary& run) {
                const tasks::Task* task = task_of(run);
                return task ? task->curves : std::vector<experiment::ReportCurve>();
              },
          .report =
              [folder](std::vector<experiment::RunSummary> runs) {
                return experiment::render_html(tasks::compare(std::move(runs), "", folder));
              }};
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

int serve_page(const WatchOptions& given, experiment::WatchedFolder& folder) {
  watch::ServerOptions server;
  if (!given.host.empty()) server.host = given.host;
  server.port = given.port.empty() ? kDefaultPort : static_cast<int>(parse_whole("--port", given.port, 0, 65535));
  server.or_another = given.port.empty();
  watch::WebOptions options{.hosts = {server.host}, .version = HINGE_VERSION};
  if (!watch::is_loopback(server.host)) options.token = watch::random_token(), options.hosts.push_back(own_host_name());
  options.cookie = fmt::format("hinge-watch-{}", ::getpid());  // cookies do not tell ports apart
  watch::WebApp app(folder, services(folder.folder()), options);
  stop_when_asked("stopping");
  watch::serve(app, server, stop_asked(), [&](int port) {
    const bool everywhere = server.host == "0.0.0.0" || server.host == "::";
    const std::string host = everywhere                                   ? own_host_name()
                             : server.host.find(':') == std::string::npos ? server.host
                                                                          : "[" + server.host + "]";
    fmt::print("Watching {} at http://{}:{}/{}\n", folder.folder(), host, port, options.token.empty() ? "" : "?token=" + options.token);
    fmt::print("{}Ctrl-C ends it.\n", options.token.empty() ? "" : "Anyone with this address can read the runs and change their notes. ");
    std::fflush(stdout);
  });
  return 0;
}

int run_watch(const WatchOptions& options) {
  if (options.once && options.web) throw UsageError("--once and --web: choose one");
  if (!options.web && !(options.host.empty() && options.port.empty())) throw UsageError("--host and --port belong to --web");
  if (options.folder.empty() && !std::filesystem::exists(kWatchedByDefault)) {
    fmt::print("No runs yet: 'hinge train CONFIG' makes them.\n");
    return options.once ? 0 : 1;
  }
  experiment::WatchedFolder folder(options.folder.empty() ? kWatchedByDefault : options.folder);
  if (options.once) return print_once(folder);
  if (options.web) return serve_page(options, folder);
  const int signal = watch::watch_in_terminal(folder, tasks::score_format);
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace

void add_watch(Command parent) {
  auto options = std::make_shared<WatchOptions>();
  Command command = parent.subcommand("watch", "Watch runs and sweeps live, in the terminal or on a local web page");
  command.option("folder", options->folder, "FOLDER", "Folder that holds runs at any depth, or one run (default: runs)");
  command.flag("--once", options->once, "Print the runs as text and exit");
  command.flag("--web", options->web, "Serve a page with curves, sweeps, examples and notes, for this machine alone").group("Page");
  command.option("--port", options->port, "N", fmt::format("Port of the page; 0 is any (default: {}, or any if it is taken)", kDefaultPort))
      .group("Page");
  command
      .option("--host", options->host, "ADDRESS",
              "Address to listen at, such as 0.0.0.0 for all networks: the page then needs the token in the printed address (default: "
              "127.0.0.1)")
      .group("Page");
  command.footer(
      "Keys: up and down or j and k move, Enter opens, s and S choose the column to sort by, r reverses, / filters, a shows archived "
      "runs, q quits.\nStates: running, done, stopped (by the user), killed (no process left), stale (silent for half an hour), diverged, "
      "failed.");
  command.run([options] { return run_watch(*options); });
}

}  // namespace hinge::cli
