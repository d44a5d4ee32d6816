// Brings any picture to what a trained model takes: its channels, its size, its numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "data/image_set.h"
#include "data/pipeline.h"
#include "tasks/vision/config.h"

namespace hinge::vision {

// Grey to colour by repeating, colour to grey by luminance. Throws std::runtime_error for other numbers of channels.
void convert_channels(data::Image& image, int channels);

// The same images with that number of channels.
std::shared_ptr<const data::ImageSet> with_channels(std::shared_ptr<const data::ImageSet> images, int64_t channels);

// The run's eval_pp, and a resize to the model's image size before its numbers: nothing happens there to images that have it already.
data::Pipeline input_pipeline(const Config& config);

// Preprocessing for a few-shot probe. Models for images of at least 64 pixels get what big_vision's get: the whole picture, whatever its
// aspect, as a square 256/224 of their size, and of that the middle, with the numbers of the run's eval_pp. Smaller models get
// input_pipeline().
data::Pipeline probe_pipeline(const Config& config);

struct ModelInput {
  data::Image image;  // what the model sees, as bytes
  at::Tensor pixels;  // [1, height, width, channels]
};
ModelInput model_input(const Config& config, data::Image image);
ModelInput model_input(const Config& config, const std::string& file);  // throws data::DataError

}  // namespace hinge::vision
