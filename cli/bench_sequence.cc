// hinge bench sequence: attention whose tokens are split over processes.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bench/sequence.h"
#include "cli/arguments.h"
#include "cli/bench_command.h"
#include "cli/commands.h"
#include "cli/processes.h"
#include "train/config.h"

namespace hinge::cli {
namespace {

constexpr int kSequenceRounds = 7;

struct BenchSequenceOptions {
  std::string kinds = "relu,relu/keys,softmax,softmax/keys", batch = "1", tokens = "4096", heads = "6", kv_heads, width = "64";
  bool causal = false;
  BenchOptions bench;
};

int bench_sequence(const BenchSequenceOptions& options) {
  const std::optional<distributed::Environment> environment = distributed::read_environment();
  if (!environment) throw UsageError("hinge bench sequence measures what several processes exchange: hinge launch -n 2 -- bench sequence");
  bench::SequencePlan plan;
  plan.kinds = parse_words("--kinds", options.kinds, {"relu", "relu/keys", "softmax", "softmax/keys", "identity", "identity/keys"});
  plan.batch = parse_whole("--batch", options.batch, 1, 1 << 20);
  plan.tokens = parse_whole("--tokens", options.tokens, environment->world, 1 << 24);
  plan.heads = parse_whole("--heads", options.heads, 1, 1024);
  plan.kv_heads = options.kv_heads.empty() ? plan.heads : parse_whole("--kv-heads", options.kv_heads, 1, plan.heads);
  if (plan.heads % plan.kv_heads != 0)
    throw UsageError(fmt::format("--heads {} is not a multiple of --kv-heads {}", plan.heads, plan.kv_heads));
  plan.width = parse_whole("--width", options.width, 1, 1024);
  plan.causal = options.causal;
  plan.threads =
      options.bench.threads.empty() ? train::Machine::present(std::max(1, environment->local_world)).cores : options.bench.thread_count();
  plan.rounds = options.bench.round_count(kSequenceRounds);
  at::set_num_threads(plan.threads);
  const bool first = environment->rank == 0;
  std::optional<BenchOutput> output;
  if (first) output.emplace(options.bench.json);
  const bench::SequenceReport report = with_processes(*environment, [&](distributed::ProcessGroup& group, const std::string&) {
    return bench::run(
        plan, group, first ? bench::ShowProgress(show_progress) : [](const std::string&) {});
  });
  if (!first) return 0;
  show_progress("");
  output->write(table(report), to_json(report));
  return 0;
}

}  // namespace

void add_bench_sequence(Command parent) {
  Command command = parent.subcommand("sequence", "Attention whose tokens are split over processes: bytes, messages, time");
  auto options = std::make_shared<BenchSequenceOptions>();
  const auto choose = [&](const char* name, std::string& value, const char* type, const char* meaning) {
    option_with_default(command, name, value, type, meaning).group(kBenchWhat);
  };
  choose("--kinds", options->kinds, "LIST", "Activations: relu, softmax, identity; with /keys, keys and values travel instead of queries");
  choose("--batch", options->batch, "N", "Sequences");
  choose("--tokens", options->tokens, "N", "Tokens of a sequence, on all processes together");
  choose("--heads", options->heads, "N", "Heads of the queries");
  command.option("--kv-heads", options->kv_heads, "N", "Heads of keys and values (default: as many as --heads)").group(kBenchWhat);
  choose("--width", options->width, "N", "Width of a head");
  command.flag("--causal", options->causal, "Each token sees those before it").group(kBenchWhat);
  add_bench_options(command, options->bench, std::to_string(kSequenceRounds),
                    "Threads of each process (default: OMP_NUM_THREADS, else an even share of the cores)");
  command.footer(
      "Run it with several processes: hinge launch -n 2 -- bench sequence. Bytes and messages are those that rank 0\n"
      "sends; the time is that of the slowest process.\n"
      "Computing is the time of the same pass when nothing is sent.");
  command.run([options] { return bench_sequence(*options); });
}

}  // namespace hinge::cli
