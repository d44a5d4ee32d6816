// What the benchmark commands have in common: options, progress, a table, the numbers as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/command.h"
#include "support/atomic_file.h"

namespace hinge::cli {

// The headings of the options in the help.
inline constexpr const char *kBenchWhat = "What to measure", *kBenchHow = "How to measure", *kBenchOutput = "Output";

struct BenchOptions {
  std::string threads, rounds, json;

  int thread_count() const;  // by the thread policy (support/threads.h), if none are given
  int round_count(int otherwise) const;
};
// The options --threads, --rounds and --json. `rounds` says what the default is, `threads` what the number is.
void add_bench_options(Command command, BenchOptions& options, const std::string& rounds, const std::string& threads = kThreadsMeaning);

// An option whose help names the default that `value` holds.
Option option_with_default(Command command, const std::string& name, std::string& value, const std::string& type,
                           const std::string& meaning);

// One line that is overwritten as the work goes on, on a terminal only; an empty one clears it.
void show_progress(const std::string& line);

class BenchOutput {
 public:
  // `json` is a file, for which the place is made now, so that nothing fails after the work; "-", which is standard output; or nothing.
  explicit BenchOutput(const std::string& json);
  // The table goes to standard output, or out of the way of the numbers to standard error.
  void write(const std::string& table, const nlohmann::ordered_json& numbers);

 private:
  bool to_standard_output_;
  std::optional<support::AtomicFile> file_;
};

// Measures what the plan says and prints it; the report.
template <typename Plan> auto measure(const Plan& plan, const BenchOptions& options) {
  BenchOutput output(options.json);
  const auto report = run(plan, show_progress);  // bench::run
  show_progress("");
  output.write(table(report), to_json(report));
  return report;
}

}  // namespace hinge::cli
