// A run made of weights from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "tasks/vision/config.h"

namespace hinge::vision {

struct ImportOptions {
  bool head = true;                       // take the file's head; else it starts anew
  std::vector<std::string> classes = {};  // names of the head's outputs; empty: those of the config's data, or numbers
};

// Makes the run `folder` of timm's weights in a safetensors file, as at step 0: it can be evaluated, used, and trained on with
// `hinge train --resume`. Returns what a user should know. Throws std::runtime_error.
std::vector<std::string> import_timm_run(const std::string& weights, Config config, const std::string& folder,
                                         const ImportOptions& options = {});

}  // namespace hinge::vision
