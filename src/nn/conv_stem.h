// A convolutional stem: convolutions in the place of a patch embedding, which bring an image down to the grid of its patches. Small images
// with little data gain most from it (Xiao et al., "Early convolutions help transformers see better", 2021).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/parameters.h"
#include "nn/residual_stream.h"

namespace hinge::nn {

// Convolutions of 3 x 3 pixels, each followed by a layer norm of the channels and a relu. The first keeps the resolution; each of the
// others halves it, until `patch` pixels have become one. The channels double towards `width`, which the last one has.
class ConvStem {
 public:
  struct Layer {
    int64_t in, out, stride;
  };
  static std::vector<Layer> layers(int64_t channels, int64_t width, int64_t patch);  // patch is a power of two

  ConvStem(const Builder& builder, const std::vector<Layer>& layers, Init init);

  // images [n, side, side, channels] to [n, side / patch, side / patch, width].
  at::Tensor forward(const at::Tensor& images) const;

 private:
  struct Convolution {
    at::Tensor weight;  // [out, in, 3, 3]
    int64_t stride;
    Norm norm;
  };
  std::vector<Convolution> convolutions_;
};

}  // namespace hinge::nn
