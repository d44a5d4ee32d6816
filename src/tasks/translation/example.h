// What a trained model translates one sentence to, and where it looks, for the page of `hinge watch`.
#pragma once

#include <string>

#include "tasks/task.h"

namespace hinge::translation {

// Throws std::runtime_error.
tasks::Example example(const std::string& run, const std::string& sentence);

}  // namespace hinge::translation
