// hinge doctor: what this machine has, and what makes it slow.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "cli/commands.h"

namespace hinge::cli {
namespace {

void print(const bench::Machine& machine, const std::vector<bench::Finding>& found) {
  const auto line = [](const char* what, const std::string& value) { fmt::print("{:<12}{}\n", what, value); };
  const auto rate = [&](double gflops) {
    return fmt::format("{:.0f} GFLOP/s, {:.0f}% of the FMA peak", gflops, 100 * gflops / machine.fma_peak_gflops);
  };
  const double gib = 1024.0 * 1024.0 * 1024.0;
  line("processor", fmt::format("{}, {} of {} cores usable", machine.cpu.model, machine.cpu.cores, machine.cpu.online_cores));
  line("memory", fmt::format("{:.1f} GiB, {:.1f} available", static_cast<double>(machine.memory.total_bytes) / gib,
                             static_cast<double>(machine.memory.available_bytes) / gib));
  line("threads", fmt::format("{}, unless train.threads or --threads says otherwise", machine.threads));
  line("SIMD", fmt::format("{} in use; compiled in: {}", machine.simd, fmt::join(machine.simd_compiled, ", ")));
  line("compiler", machine.compiler + (machine.optimized ? "" : ", debug build"));
  line("FMA peak",
       fmt::format("{:.0f} GFLOP/s float32 on {} thread{}", machine.fma_peak_gflops, machine.threads, machine.threads == 1 ? "" : "s"));
  line("oneDNN", fmt::format("{}: sgemm {}", machine.onednn_version, rate(machine.onednn_sgemm_gflops)));
  if (machine.blas.kind == bench::BlasKind::none)
    line("BLAS", "none found");
  else
    line("BLAS", fmt::format("{}: sgemm {}\n{:<12}{}", bench::blas_name(machine.blas.kind), rate(machine.blas.sgemm_gflops), "",
                             machine.blas.path));
  line("LibTorch", fmt::format("{}: mm {}", machine.libtorch.version, rate(machine.libtorch.mm_gflops)));

  if (found.empty()) {
    fmt::print("\nNothing here makes Hinge slow.\n");
    return;
  }
  fmt::print("\n{} here:\n", found.size() == 1 ? "One thing makes things slow" : fmt::format("{} things make things slow", found.size()));
  for (const bench::Finding& finding : found) fmt::print("  * {}\n    mend it: {}\n", finding.problem, finding.mend);
}

}  // namespace

void add_doctor(Command parent) {
  Command command = parent.subcommand("doctor", "Check this machine: its hardware, its speed and what slows it down");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "Print JSON instead of text").group("Output");
  command.run([json] {
    const bench::Machine machine = bench::probe_machine();
    const std::vector<bench::Finding> found = bench::findings(machine);
    if (*json)
      fmt::print("{}\n", bench::to_json(machine, found).dump(2));
    else
      print(machine, found);
    return 0;
  });
}

}  // namespace hinge::cli
