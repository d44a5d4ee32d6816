#include "cli/bench_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace hinge::cli {

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
