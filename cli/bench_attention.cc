// hinge bench attention: checks the attention kernels, then measures them.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "bench/attention.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "experiment/svg_plot.h"
#include "support/atomic_file.h"

namespace hinge::cli {
namespace {

struct Options {
  std::string h = "relu,softmax";
  std::string shapes = "8x6x50,8x6x197,8x6x785,1x6x4096";
  std::string dim = "64";
  std::string pass = "forward,backward";
  std::string zeros = "off";
  std::string causal = "off";
  std::string dropout = "0";
  std::string threads;
  std::string rounds;
  bool quick = false;
  std::string json;
  std::string plot;
};

bench::AttentionPlan plan(const Options& options) {
  bench::AttentionPlan plan;
  plan.h = parse_activations("--h", options.h);
  plan.shapes = parse_shapes("--shapes", options.shapes);
  plan.passes = parse_passes("--pass", options.pass);
  plan.zeros = parse_zeros("--zeros", options.zeros);
  plan.causal = parse_causal("--causal", options.causal);
  plan.dropout = parse_dropouts("--dropout", options.dropout);
  plan.D = parse_whole("--dim", options.dim, 1, 1024);
  plan.threads = options.threads.empty() ? omp_get_max_threads() : static_cast<int>(parse_whole("--threads", options.threads, 1, 1024));
  plan.rounds = options.rounds.empty() ? (options.quick ? 3 : 15) : static_cast<int>(parse_whole("--rounds", options.rounds, 1, 10000));
  if (options.quick) plan.seconds_per_sample = 0.002;
  return plan;
}

// One line that is overwritten as the work goes on, on a terminal only.
void show_progress(const std::string& line) {
  if (::isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K{}", line);
}

int bench_attention(const Options& options) {
  const bench::AttentionPlan what = plan(options);
  const bool json_to_stdout = options.json == "-";
  std::optional<support::AtomicFile> json, plot;
  if (!options.json.empty() && !json_to_stdout) json.emplace(options.json);
  if (!options.plot.empty()) plot.emplace(options.plot);

  const bench::AttentionReport report = bench::run(what, show_progress);
  show_progress("");
  fmt::print(json_to_stdout ? stderr : stdout, "{}", bench::table(report));
  const std::string text = bench::to_json(report).dump(2) + "\n";
  if (json_to_stdout) fmt::print("{}", text);
  if (json) json->commit(text);
  if (plot) plot->commit(experiment::render(bench::chart(report)));
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Run& run) {
  CLI::App* command = bench.add_subcommand("attention", "The attention kernels: checked against the reference, then measured");
  auto options = std::make_shared<Options>();
  const char *what = "What to measure", *how = "How to measure", *output = "Output";
  const auto choose = [&](const char* group, const char* name, std::string& value, const char* type, const std::string& meaning) {
    const std::string text = value.empty() ? meaning : fmt::format("{} (default: {})", meaning, value);
    return command->add_option(name, value, text)->group(group)->type_name(type);
  };
  choose(what, "--h", options->h, "LIST", "Activations, or all; identity also in its linear order");
  choose(what, "--shapes", options->shapes, "LIST", "Batch x heads x length");
  choose(what, "--dim", options->dim, "N", "Head width D");
  choose(what, "--pass", options->pass, "LIST", "Passes");
  choose(what, "--zeros", options->zeros, "LIST",
         "Inputs with W of relu's weights zero and G of its 6x1 groups, as W:G, e.g. off,0.65:0.40");
  choose(what, "--causal", options->causal, "LIST", "Causal visibility: off, on, or off,on; alone it means on")->expected(0, 1);
  choose(what, "--dropout", options->dropout, "LIST", "Probabilities of dropping a weight, e.g. 0,0.1");
  choose(how, "--threads", options->threads, "N", "Threads (default: all that OpenMP gives)");
  choose(how, "--rounds", options->rounds, "N", "Samples of every case (default: 15, with --quick 3)");
  command->add_flag("--quick", options->quick, "Fewer and shorter samples, for a first look")->group(how);
  choose(output, "--json", options->json, "FILE", "Write the numbers to FILE, or to standard output for -");
  choose(output, "--plot", options->plot, "FILE", "Draw the shares of the FMA peak as SVG into FILE");
  command->footer(
      "LIST items are separated by commas; every combination is measured. A 6x1 group: 6 neighbouring queries, 1 key.\n"
      "Flops counted: 4 B H L^2 D forward, 10 B H L^2 D backward, also where causal or the linear order compute less.");
  command->callback([&run, options, command] {
    if (command->count("--causal") && command->get_option("--causal")->results() == std::vector<std::string>{""}) options->causal = "on";
    run = [options] { return bench_attention(*options); };
  });
}

}  // namespace hinge::cli
