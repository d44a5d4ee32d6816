// hinge bench vit: checks small and full-size vision transformers, then measures a training step and inference.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/vit.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "support/atomic_file.h"

namespace hinge::cli {
namespace {

struct Options {
  std::string models = "S/16,S/8,28px/4,28px/2", attention = "relu-vit,softmax", pass = "train,infer", threads, rounds = "5", json;
};

int bench_vit(const Options& options) {
  bench::VitPlan plan;
  plan.models = parse_words("--models", options.models, bench::vit_model_names());
  plan.attentions = parse_words("--attention", options.attention, {"relu-vit", "softmax"});
  plan.passes = parse_words("--pass", options.pass, {"train", "infer"});
  plan.threads = options.threads.empty() ? omp_get_num_procs() : static_cast<int>(parse_whole("--threads", options.threads, 1, 1024));
  plan.rounds = static_cast<int>(parse_whole("--rounds", options.rounds, 1, 10000));
  const bool json_to_stdout = options.json == "-";
  std::optional<support::AtomicFile> json;
  if (!options.json.empty() && !json_to_stdout) json.emplace(options.json);
  const auto progress = [](const std::string& line) {
    if (::isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K{}", line);
  };
  const bench::VitReport report = bench::run(plan, progress);
  progress("");
  fmt::print(json_to_stdout ? stderr : stdout, "{}", bench::table(report));
  const std::string text = bench::to_json(report).dump(2) + "\n";
  if (json_to_stdout) fmt::print("{}", text);
  if (json) json->commit(text);
  return 0;
}

}  // namespace

void add_bench_vit(CLI::App& bench, Run& run) {
  CLI::App* command = bench.add_subcommand("vit", "Whole vision transformers: a training step and inference");
  auto options = std::make_shared<Options>();
  const auto choose = [&](const char* name, std::string& value, const char* type, const std::string& meaning) {
    command->add_option(name, value, value.empty() ? meaning : fmt::format("{} (default: {})", meaning, value))->type_name(type);
  };
  choose("--models", options->models, "LIST", "Models, with the batch each is measured at");
  choose("--attention", options->attention, "LIST", "Attentions");
  choose("--pass", options->pass, "LIST", "Training step, inference");
  choose("--threads", options->threads, "N", "Threads (default: all cores)");
  choose("--rounds", options->rounds, "N", "Samples of every case");
  choose("--json", options->json, "FILE", "Write the numbers to FILE, or to standard output for -");
  command->footer("LIST items are separated by commas; every combination is measured. Models are pre-norm, with GELU, gap pooling and no qk-norm.");
  command->callback([&run, options] { run = [options] { return bench_vit(*options); }; });
}

}  // namespace hinge::cli
