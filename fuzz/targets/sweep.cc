// The description of a sweep.
#include "experiment/sweep.h"

#include "../target.h"

namespace hinge::fuzz {

static void sweep_target(Input input) {
  static MemoryFile file;
  experiment::read_sweep(file.holding(input));
}

const Target target_sweep{"sweep", &sweep_target};

}  // namespace hinge::fuzz
