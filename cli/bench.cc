// hinge bench: the benchmarks, one command each.
#include "cli/commands.h"

namespace hinge::cli {

void add_bench(CLI::App& app, Run& run) {
  CLI::App* bench = app.add_subcommand("bench", "Check and measure what Hinge computes");
  bench->require_subcommand(1);
  add_bench_attention(*bench, run);
  add_bench_vit(*bench, run);
}

}  // namespace hinge::cli
