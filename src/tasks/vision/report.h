// What a report says of vision runs beside their curves: what each model says of some evaluation images, and where it looks.
#pragma once

#include <vector>

#include "experiment/html_report.h"

namespace hinge::vision {

// Asks the best checkpoint of each run, on all cores. A run without one, or with other images than the first that has one, is left out of
// the samples, and gets a problem that says so.
std::vector<experiment::ReportSection> report_sections(std::vector<experiment::RunSummary>& runs);

}  // namespace hinge::vision
