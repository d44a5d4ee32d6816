// The JSON files of a run that is not one's own: its status, and the description of a checkpoint.
#include "../target.h"
#include "train/run_folder.h"

namespace hinge::fuzz {

static void run_target(Input input) {
  static const MemoryFolder run;
  static const bool made = (run.put("config.toml", ""), true);
  static_cast<void>(made);
  run.put("checkpoints/step-00000001/checkpoint.json", text_of(input));
  train::latest_checkpoint(run.path());
  train::best_checkpoint(run.path());
  train::verify_run(run.path());
  run.put("status.json", text_of(input));
  train::read_status(run.path());
}

const Target target_run{"run", &run_target};

}  // namespace hinge::fuzz
