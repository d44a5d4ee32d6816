// The page that compares vision runs: curves and table, what each model says of some evaluation images, and where it looks.
#pragma once

#include <string>
#include <vector>

#include "experiment/html_report.h"

namespace hinge::experiment {

// Asks the best checkpoint of each run, on all cores. A run without one, or with other images than the first that has one, is left out of
// the samples, and the page says so.
Report vit_report(std::vector<RunSummary> runs, const std::string& title);

}  // namespace hinge::experiment
