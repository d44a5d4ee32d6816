// What the trainings of a sweep cost, before any of them is begun: hinge sweep --dry-run.
#pragma once

#include <string>
#include <vector>

#include "experiment/sweep.h"
#include "tasks/task.h"

namespace hinge::tasks {

// Points whose trainings are of the same size.
struct CostGroup {
  TrainingCost cost;  // of each
  std::vector<experiment::Point> points;

  // The axes on which all of them agree: "L=16".
  std::string common() const;
};

// Measures, and shows on standard error how far it is. Throws support::ConfigError if the sweep assumes what the task does not know.
std::vector<CostGroup> cost_groups(const experiment::Sweep& sweep, const Task& task, const std::vector<experiment::SweepPoint>& points);

// ---- for the tasks themselves

// The seconds of one of the costs that is as large in everything else; 0 if there is none.
double known_seconds(const TrainingCost& cost, const std::vector<TrainingCost>& known);

}  // namespace hinge::tasks
