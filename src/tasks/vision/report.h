// What a report says of vision runs beside their curves: what each model says of some evaluation images, and where it looks.
#pragma once

#include <string>
#include <vector>

#include "experiment/html_report.h"

namespace hinge::vision {

// Asks the best checkpoint of each run, on all cores. A run without one, or with other images than the first that has one, is left out of
// the samples, and gets a problem that says so. Images outside of the folder `within` are not read; empty: all are.
std::vector<experiment::ReportSection> report_sections(std::vector<experiment::RunSummary>& runs, const std::string& within);

}  // namespace hinge::vision
