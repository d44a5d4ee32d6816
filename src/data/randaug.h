// RandAugment (Cubuk et al. 2019) on bytes: n operations, chosen at random among sixteen, at one magnitude m. The scale of m is
// AutoAugment's: 10 is the strongest of that paper, and larger is allowed. Images have 1 or 3 channels.
#pragma once

#include <span>
#include <string_view>

#include "data/image.h"
#include "data/random.h"

namespace hinge::data {

struct RandAugOperation {
  std::string_view name;
  // Changes `image`; `other` lends its memory. `strength` is m / 10.
  void (*apply)(Image& image, Image& other, double strength, Random& random);
};

std::span<const RandAugOperation> randaug_operations();

void randaug(Image& image, Image& other, int n, double m, Random& random);

}  // namespace hinge::data
