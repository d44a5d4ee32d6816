// The labels of a set of images in terms of a model's classes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/image_set.h"

namespace hinge::vision {

// Whether the names of classes are just their numbers 0, 1, ..., as imported weights may have them.
bool are_numbers(const std::vector<std::string>& names);

struct LabelledImages {
  std::shared_ptr<const data::ImageSet> images;
  std::vector<int64_t> among;  // EvaluationOptions::among
  int64_t left_out = 0;        // images whose class is not asked for
};

// Classes are matched by name; if the names on one side are just the numbers 0, 1, ... and both sides have as many, by place.
// With `only` empty, images keep to the model's classes, and a class that the model does not know is an error. Otherwise `only` names the
// classes of the model among which it predicts: label i is then only[i], and images of other classes are left out.
// Throws std::runtime_error.
LabelledImages match_labels(const std::shared_ptr<const data::ImageSet>& images, const std::vector<std::string>& model_classes,
                            const std::vector<std::string>& only = {});

}  // namespace hinge::vision
