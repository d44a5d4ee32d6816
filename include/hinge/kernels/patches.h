// Images as rows of patches, the input of a patch embedding.
#pragma once

#include <cstdint>

#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// images [n, height, width, channels] to patches [n, height / patch * width / patch, channels * patch * patch]; within a patch the order
// is that of a convolution's weights: channel, row, column. Pixels right and below of the last whole patch are left out.
void gather_patches(const float* images, int64_t n, int64_t height, int64_t width, int64_t channels, int64_t patch, float* patches,
                    Parallel&);

}  // namespace hinge::kernels
