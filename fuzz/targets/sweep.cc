// The description of a sweep.
#include "experiment/sweep.h"

#include "../target.h"

namespace hinge::fuzz {

void sweep_target(Input input) {
  static MemoryFile file;
  experiment::read_sweep(file.holding(input));
}

}  // namespace hinge::fuzz
