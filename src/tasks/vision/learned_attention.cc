#include "tasks/vision/learned_attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace hinge::vision {

train::Values learned_attention(const models::Vit& model) {
  train::Values values;
  for (const char* name : {"alpha", "gain", "bias"}) {
    const auto find = [&](const std::string& prefix) {
      const nn::Parameter* parameter = model.parameters().find(prefix + name);
      return parameter ? parameter->value.detach().to(at::kDouble) : at::Tensor();
    };
    std::vector<at::Tensor> all;
    if (const at::Tensor shared = find(nn::kSharedPrefix); shared.defined()) all.push_back(shared);
    train::Values of_blocks;
    for (int64_t i = 0; i < *model.config().depth; ++i) {
      const at::Tensor own = find(fmt::format("blocks.{}.attn.", i));
      if (!own.defined()) continue;
      all.push_back(own);
      of_blocks.emplace_back(fmt::format("{}/{}", name, i), own.mean().item<double>());
      if (own.numel() > 1) {
        of_blocks.emplace_back(fmt::format("{}/{}/min", name, i), own.min().item<double>());
        of_blocks.emplace_back(fmt::format("{}/{}/max", name, i), own.max().item<double>());
      }
    }
    if (all.empty()) continue;
    values.emplace_back(name, at::cat(all).mean().item<double>());
    values.insert(values.end(), of_blocks.begin(), of_blocks.end());
  }
  return values;
}

}  // namespace hinge::vision
