// hinge bench: the benchmarks, one command each.
#include "cli/commands.h"

namespace hinge::cli {

void add_bench(Command parent) {
  Command bench = parent.subcommand("bench", "Check and measure what Hinge computes");
  bench.require_subcommand();
  add_bench_attention(bench);
  add_bench_gemm(bench);
  add_bench_vit(bench);
  add_bench_translate(bench);
  add_bench_sequence(bench);
}

}  // namespace hinge::cli
