#include "hinge/kernels/patches.h"

namespace hinge::kernels {

void gather_patches(const float* images, int64_t n, int64_t height, int64_t width, int64_t channels, int64_t patch, float* patches,
                    Parallel& parallel) {
  const int64_t down = height / patch, across = width / patch, size = channels * patch * patch;
  parallel.run(n * down, [&](int64_t task, int) {
    const int64_t image = task / down, i = task % down;
    for (int64_t j = 0; j < across; ++j) {
      const float* from = images + ((image * height + i * patch) * width + j * patch) * channels;
      float* to = patches + ((image * down + i) * across + j) * size;
      for (int64_t y = 0; y < patch; ++y)
        for (int64_t x = 0; x < patch; ++x)
          for (int64_t c = 0; c < channels; ++c) to[(c * patch + y) * patch + x] = from[(y * width + x) * channels + c];
    }
  });
}

}  // namespace hinge::kernels
