#include "cli/bench_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace hinge::cli {

int BenchOptions::thread_count() const { return parse_threads(threads); }

int BenchOptions::round_count(int otherwise) const {
  return rounds.empty() ? otherwise : static_cast<int>(parse_whole("--rounds", rounds, 1, 10000));
}

void add_bench_options(Command command, BenchOptions& options, const std::string& rounds, const std::string& threads) {
  command.option("--threads", options.threads, "N", threads).group(kBenchHow);
  command.option("--rounds", options.rounds, "N", fmt::format("Samples of every case (default: {})", rounds)).group(kBenchHow);
  command.option("--json", options.json, "FILE", "Write the numbers to FILE, or to the standard output for -").group(kBenchOutput);
}

Option option_with_default(Command command, const std::string& name, std::string& value, const std::string& type,
                           const std::string& meaning) {
  return command.option(name, value, type, fmt::format("{} (default: {})", meaning, value));
}

void show_progress(const std::string& line) {
  if (::isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K{}", line);
}

BenchOutput::BenchOutput(const std::string& json) : to_standard_output_(json == "-") {
  if (!json.empty() && !to_standard_output_) file_.emplace(json);
}

void BenchOutput::write(const std::string& table, const nlohmann::ordered_json& numbers) {
  fmt::print(to_standard_output_ ? stderr : stdout, "{}", table);
  const std::string text = numbers.dump(2) + "\n";
  if (to_standard_output_) fmt::print("{}", text);
  if (file_) file_->commit(text);
}

}  // namespace hinge::cli
