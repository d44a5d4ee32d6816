// Lines of metrics, also to go on with.
#include "../target.h"
#include "support/jsonl.h"

namespace hinge::fuzz {

static void metrics_target(Input input) {
  static MemoryFile file;
  for (const support::MetricRecord& record : support::read_metrics(file.holding(input))) record.number("train/loss");
}

const Target target_metrics{"metrics", &metrics_target};

}  // namespace hinge::fuzz
