// hinge bench gemm: checks the dense products of the models, then measures them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>

#include "bench/gemm.h"
#include "cli/arguments.h"
#include "cli/bench_command.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

constexpr int kGemmRounds = 7;

struct BenchGemmOptions {
  std::string models = fmt::format("{}", fmt::join(bench::gemm_model_names(), ",")), kinds = "forward,infer,data,weight", workers = "1";
  BenchOptions bench;
};

int bench_gemm(const BenchGemmOptions& options) {
  bench::GemmPlan plan;
  plan.models = parse_words("--models", options.models, bench::gemm_model_names());
  plan.kinds = parse_words("--kinds", options.kinds, {"forward", "infer", "data", "weight"});
  plan.workers = parse_whole("--workers", options.workers, 1, 1024);
  plan.threads = options.bench.thread_count();
  plan.rounds = options.bench.round_count(kGemmRounds);
  measure(plan, options.bench);
  return 0;
}

}  // namespace

void add_bench_gemm(Command parent) {
  Command command = parent.subcommand("gemm", "The dense products of the models, one by one");
  auto options = std::make_shared<BenchGemmOptions>();
  const auto choose = [&](const char* name, std::string& value, const char* type, const char* meaning) {
    option_with_default(command, name, value, type, meaning).group(kBenchWhat);
  };
  choose("--models", options->models, "LIST", "Models, with the batch each is measured at");
  choose("--kinds", options->kinds, "LIST", "Forward, the same with packed weights, gradient of the data, gradient of the weights");
  choose("--workers", options->workers, "N", "Cut the batch for N workers, and measure the part of one");
  add_bench_options(command, options->bench, std::to_string(kGemmRounds));
  command.footer(
      "LIST items are separated by commas; every distinct shape is measured once.\n"
      "A training on N cores with a worker of one thread each: --threads 1 --workers N.\n"
      "decode and decode/1: a step of beam search for 16 sentences and for one, beam 4, weights of iwslt.");
  command.run([options] { return bench_gemm(*options); });
}

}  // namespace hinge::cli
