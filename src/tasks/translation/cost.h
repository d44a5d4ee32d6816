// What trainings of translation models cost, before any of them is begun.
#pragma once

#include <vector>

#include "tasks/task.h"

namespace hinge::translation {

std::vector<tasks::TrainingCost> costs(const tasks::CostRequest& request);

}  // namespace hinge::translation
