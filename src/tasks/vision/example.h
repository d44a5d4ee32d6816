// What a trained model takes one picture for, and where it looks, for the page of `hinge watch`.
#pragma once

#include <string>

#include "tasks/task.h"

namespace hinge::vision {

// `bytes` of a JPEG or PNG file. Throws std::runtime_error.
tasks::Example example(const std::string& run, const std::string& bytes);

}  // namespace hinge::vision
