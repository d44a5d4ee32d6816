#include "nn/conv_stem.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "hinge/ops/convolution.h"

namespace hinge::nn {

std::vector<ConvStem::Layer> ConvStem::layers(int64_t channels, int64_t width, int64_t patch) {
  constexpr int64_t kVector = 8;  // numbers of channels that products like
  const int halvings = std::countr_zero(static_cast<uint64_t>(patch));
  std::vector<Layer> layers;
  for (int i = 0; i <= halvings; ++i) {
    const int64_t part = width >> (halvings - i), rounded = std::max<int64_t>(part / kVector, 1) * kVector;
    layers.push_back({i == 0 ? channels : layers.back().out, i == halvings ? width : rounded, i == 0 ? 1 : 2});
  }
  return layers;
}

ConvStem::ConvStem(const Builder& builder, const std::vector<Layer>& layers, Init init) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& [in, out, stride] = layers[i];
    const Builder own = builder.under(std::to_string(i));
    convolutions_.push_back({own.kernel("conv.weight", {out, in, 3, 3}, init), stride, Norm(own, "norm", out)});
  }
}

at::Tensor ConvStem::forward(const at::Tensor& images) const {
  at::Tensor x = images;
  for (const Convolution& layer : convolutions_) x = at::relu(layer.norm(convolution(x, layer.weight, layer.stride)));
  return x;
}

}  // namespace hinge::nn
