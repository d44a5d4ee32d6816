// The page that compares translation runs: curves and table. It asks no model.
#pragma once

#include <string>
#include <vector>

#include "experiment/html_report.h"

namespace hinge::experiment {

Report translation_report(std::vector<RunSummary> runs, const std::string& title);

}  // namespace hinge::experiment
