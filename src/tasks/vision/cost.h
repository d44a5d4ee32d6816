// What trainings of vision transformers cost, before any of them is begun.
#pragma once

#include <vector>

#include "tasks/task.h"

namespace hinge::vision {

std::vector<tasks::TrainingCost> costs(const tasks::CostRequest& request);

}  // namespace hinge::vision
