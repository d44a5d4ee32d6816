// hinge bench vit: checks small and full-size vision transformers, then measures a training step and inference.
#include <memory>
#include <string>

#include "bench/vit.h"
#include "cli/arguments.h"
#include "cli/bench_command.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

constexpr int kVitRounds = 5;

struct BenchVitOptions {
  std::string models = "S/16,S/8,28px/4,28px/2", attention = "relu-vit,softmax", gate = "none", pass = "train,infer";
  BenchOptions bench;
};

int bench_vit(const BenchVitOptions& options) {
  bench::VitPlan plan;
  plan.models = parse_words("--models", options.models, bench::vit_model_names());
  plan.attentions = parse_words("--attention", options.attention, {"relu-vit", "softmax"});
  plan.gates = parse_words("--gate", options.gate, {"none", "linear", "sigmoid"});
  plan.passes = parse_words("--pass", options.pass, {"train", "infer"});
  plan.threads = options.bench.thread_count();
  plan.rounds = options.bench.round_count(kVitRounds);
  measure(plan, options.bench);
  return 0;
}

}  // namespace

void add_bench_vit(Command parent) {
  Command command = parent.subcommand("vit", "Whole vision transformers: a training step and inference");
  auto options = std::make_shared<BenchVitOptions>();
  const auto choose = [&](const char* name, std::string& value, const char* meaning) {
    option_with_default(command, name, value, "LIST", meaning).group(kBenchWhat);
  };
  choose("--models", options->models, "Models, with the batch each is measured at");
  choose("--attention", options->attention, "Attentions");
  choose("--gate", options->gate, "Gates of the attention's result");
  choose("--pass", options->pass, "Training step, inference");
  add_bench_options(command, options->bench, std::to_string(kVitRounds));
  command.footer(
      "LIST items are separated by commas; every combination is measured. Models are pre-norm, with GELU, gap pooling and no qk-norm.");
  command.run([options] { return bench_vit(*options); });
}

}  // namespace hinge::cli
