// What a trained model takes a picture for.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/vision/model_input.h"
#include "tasks/vision/trained_model.h"

namespace hinge::vision {

struct Prediction {
  int64_t label = 0;
  double probability = 0, logit = 0;
};

// The `top` classes of a picture, the likeliest first.
std::vector<Prediction> predict(const TrainedModel& trained, const ModelInput& input, int64_t top);

}  // namespace hinge::vision
