// A batch of images as what a model takes.
#pragma once

#include <ATen/ATen.h>

#include "data/loader.h"

namespace hinge::eval {

// A tensor [images, height, width, channels] over the batch's own memory.
inline at::Tensor pixels_of(data::Batch& batch) {
  return at::from_blob(batch.pixels.data(), {batch.size, batch.shape.height, batch.shape.width, batch.shape.channels}, at::kFloat);
}

}  // namespace hinge::eval
