// hinge data export of a translation: a split of its text as two plain files, to be translated and scored.
#pragma once

#include <string>

#include "tasks/task.h"

namespace hinge::translation {

// Returns what was written. What was left out, and whether a run may have been trained on it, goes to standard error.
std::string export_text(const tasks::ExportRequest& request);

}  // namespace hinge::translation
