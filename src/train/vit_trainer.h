// Training a vision transformer into a run folder, from the start or from its last checkpoint.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "train/trainer.h"
#include "train/vit_config.h"

namespace hinge::train {

// Begins a new run in `folder`, or goes on with the one there. `stop` may be set at any time, by a signal handler for example: the run
// saves a checkpoint and returns. `changes` ("optim.lr=1e-4") are stored in the run's config before it goes on. Throws std::runtime_error.
TrainResult train_vit(const VitTrainConfig& config, const std::string& folder, const std::atomic<bool>& stop,
                      support::ProgressOutput output = support::ProgressOutput::standard_error());
TrainResult resume_vit(const std::string& folder, const std::atomic<bool>& stop,
                       support::ProgressOutput output = support::ProgressOutput::standard_error(),
                       const std::vector<std::string>& changes = {});

}  // namespace hinge::train
