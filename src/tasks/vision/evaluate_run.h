// hinge eval of a vision run: top-1, top-5, loss and each class on a set of images.
#pragma once

#include "tasks/task.h"
#include "tasks/vision/config.h"

namespace hinge::vision {

tasks::EvalReport evaluate_run(const tasks::EvalRequest& request);

// "FORMAT" or "FORMAT:FOLDER", as --data takes it, with the other keys of the run's data. Throws tasks::RequestError.
DataConfig other_data(const std::string& given, const DataConfig& of_run);

}  // namespace hinge::vision
