// Training a vision transformer into a run folder, from the start or from its last checkpoint.
#pragma once

#include <atomic>
#include <string>

#include "train/trainer.h"
#include "train/vit_config.h"

namespace hinge::train {

// Begins a new run in `folder`, or goes on with the one there. `stop` may be set at any time, by a signal handler for example: the run
// saves a checkpoint and returns. Throws std::runtime_error.
TrainResult train_vit(const VitTrainConfig& config, const std::string& folder, const std::atomic<bool>& stop,
                      support::ProgressOutput output = support::ProgressOutput::standard_error());
TrainResult resume_vit(const std::string& folder, const std::atomic<bool>& stop,
                       support::ProgressOutput output = support::ProgressOutput::standard_error());

}  // namespace hinge::train
