// Results of a sweep, merged from several machines: what is read is written and read again.
#include "experiment/sweep_results.h"

#include <stdexcept>

#include "../target.h"

namespace hinge::fuzz {

static void sweep_results_target(Input input) {
  static MemoryFile file, again_file;
  const std::vector<experiment::PointResult> results = experiment::read_all_results(file.holding(input));
  std::string written;
  for (const experiment::PointResult& result : results) written += experiment::result_line(result) + "\n";
  const std::vector<experiment::PointResult> again =
      experiment::read_all_results(again_file.holding({reinterpret_cast<const uint8_t*>(written.data()), written.size()}));
  if (again.size() != results.size()) throw std::logic_error("results change when they are written and read");
  experiment::read_results(file.holding(input));
}

const Target target_sweep_results{"sweep_results", &sweep_results_target};

}  // namespace hinge::fuzz
