// What the benchmarks have in common: progress, a table, the numbers as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "support/atomic_file.h"

namespace hinge::cli {

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

}  // namespace hinge::cli
