// Training a vision transformer into a run folder, from the start or from its last checkpoint.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "support/progress.h"
#include "train/vit_config.h"

namespace hinge::train {

struct TrainResult {
  bool finished = false;  // false: stopped by the user, a checkpoint is saved
  int64_t step = 0, steps = 0;
  double accuracy = 0;  // of the last evaluation
  double best = 0;
  double images_per_second = 0;  // of all training steps of the run
  double waiting_share = 0;      // share of this process's training time in which no batch was ready
  int64_t parameters = 0;
  int64_t memory_bytes = 0;  // largest resident size of the process
};

// A run that failed for a reason that the run itself found: its status says so, too.
struct TrainError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Begins a new run in `folder`, or goes on with the one there. `stop` may be set at any time, by a signal handler for example: the run
// saves a checkpoint and returns. Throws std::runtime_error.
TrainResult train_vit(const VitTrainConfig& config, const std::string& folder, const std::atomic<bool>& stop,
                      support::ProgressOutput output = support::ProgressOutput::standard_error());
TrainResult resume_vit(const std::string& folder, const std::atomic<bool>& stop,
                       support::ProgressOutput output = support::ProgressOutput::standard_error());

}  // namespace hinge::train
