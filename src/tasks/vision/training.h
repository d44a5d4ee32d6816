// Training a vision transformer into a run folder, from the start or from its last checkpoint.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "support/progress.h"
#include "tasks/vision/config.h"
#include "train/train_result.h"

namespace hinge::vision {

// Begins a new run in `folder`, or goes on with the one there. `stop` may be set at any time, by a signal handler for example: the run
// saves a checkpoint and returns. `changes` ("optim.lr=1e-4") are stored in the run's config before it goes on. `group`: the processes that
// train together; null for this one alone. Rank 0 has the folder. Throws std::runtime_error.
train::TrainResult train(const Config& config, const std::string& folder, const std::atomic<bool>& stop,
                         support::ProgressOutput output = support::ProgressOutput::standard_error(),
                         distributed::ProcessGroup* group = nullptr);
train::TrainResult resume(const std::string& folder, const std::vector<std::string>& changes, const std::atomic<bool>& stop,
                          support::ProgressOutput output = support::ProgressOutput::standard_error(),
                          distributed::ProcessGroup* group = nullptr);

}  // namespace hinge::vision
