// hinge bench vit: checks small and full-size vision transformers, then measures a training step and inference.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/vit.h"
#include "cli/arguments.h"
#include "cli/bench_output.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

struct BenchVitOptions {
  std::string models = "S/16,S/8,28px/4,28px/2", attention = "relu-vit,softmax", pass = "train,infer", threads, rounds = "5", json;
};

int bench_vit(const BenchVitOptions& options) {
  bench::VitPlan plan;
  plan.models = parse_words("--models", options.models, bench::vit_model_names());
  plan.attentions = parse_words("--attention", options.attention, {"relu-vit", "softmax"});
  plan.passes = parse_words("--pass", options.pass, {"train", "infer"});
  plan.threads = parse_threads(options.threads);
  plan.rounds = static_cast<int>(parse_whole("--rounds", options.rounds, 1, 10000));
  BenchOutput output(options.json);
  const bench::VitReport report = bench::run(plan, show_progress);
  show_progress("");
  output.write(bench::table(report), bench::to_json(report));
  return 0;
}

}  // namespace

void add_bench_vit(Command parent) {
  Command command = parent.subcommand("vit", "Whole vision transformers: a training step and inference");
  auto options = std::make_shared<BenchVitOptions>();
  const auto choose = [&](const char* name, std::string& value, const char* type, const std::string& meaning) {
    command.option(name, value, type, value.empty() ? meaning : fmt::format("{} (default: {})", meaning, value));
  };
  choose("--models", options->models, "LIST", "Models, with the batch each is measured at");
  choose("--attention", options->attention, "LIST", "Attentions");
  choose("--pass", options->pass, "LIST", "Training step, inference");
  choose("--threads", options->threads, "N", kThreadsMeaning);
  choose("--rounds", options->rounds, "N", "Samples of every case");
  choose("--json", options->json, "FILE", "Write the numbers to FILE, or to standard output for -");
  command.footer(
      "LIST items are separated by commas; every combination is measured. Models are pre-norm, with GELU, gap pooling and no qk-norm.");
  command.run([options] { return bench_vit(*options); });
}

}  // namespace hinge::cli
