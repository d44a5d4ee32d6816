#include "tasks/vision/attention_numbers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace hinge::vision {
namespace {

using at::Tensor;

// Whether all weights of a row have one sign: then the engine's sums over rows tell all, and the weights themselves are not needed.
bool has_one_sign(const PackedAttentionOptions& options) {
  using kernels::Activation;
  switch (options.attention.h) {
    case Activation::relu:
    case Activation::relu2:
    case Activation::relu6:
    case Activation::softplus:
    case Activation::sigmoid:
    case Activation::softmax: return !options.sparse;
    default: return false;
  }
}

// The mean entropy of rows with the weights w_j: `sum` is that of |w_j|, `log_sum` that of |w_j| log |w_j|. Rows of zeros do not count.
double mean_entropy(const Tensor& sum, const Tensor& log_sum) {
  const Tensor counts = sum > 0, divisor = at::where(counts, sum, at::ones_like(sum));
  const double rows = static_cast<double>(counts.sum().item<int64_t>());
  return rows > 0 ? at::where(counts, divisor.log() - log_sum / divisor, at::zeros_like(sum)).sum().item<double>() / rows : 0;
}

}  // namespace

AttentionNumbers attention_numbers(const nn::AttentionView& view) {
  const at::NoGradGuard guard;
  AttentionNumbers numbers;
  AttentionOptions options = view.options.attention;
  options.dropout = 0;
  if (!view.options.sparse) {
    const AttentionResult result = attention_with_statistics(view.q, view.k, view.v, options);
    numbers.skipped_share = result.skipped_share.mean().item<double>();
    if (has_one_sign(view.options)) {
      const Tensor sum = result.weight_sum.to(at::kDouble), log_sum = result.weight_log.to(at::kDouble);
      numbers.mass = sum.mean().item<double>();
      numbers.entropy = mean_entropy(sum.abs(), log_sum * sum.sign());
      numbers.zero_share = result.zero_share.to(at::kDouble).mean().item<double>();
      return numbers;
    }
  }
  const Tensor weights = nn::attention_weights(view).to(at::kDouble), size = weights.abs();
  numbers.mass = weights.sum(-1).mean().item<double>();
  numbers.entropy = mean_entropy(size.sum(-1), at::xlogy(size, size).sum(-1));
  numbers.zero_share = (weights == 0).to(at::kDouble).mean().item<double>();
  return numbers;
}

train::Values attention_statistics(const models::Vit& model, const Tensor& pixels) {
  const at::NoGradGuard guard;
  constexpr int64_t kTogether = 8;  // views keep what every layer has computed
  struct Layer : AttentionNumbers {
    double variance = 0;
  };
  std::vector<Layer> layers(static_cast<size_t>(*model.config().depth));
  const int64_t n = pixels.size(0);
  for (int64_t first = 0; first < n; first += kTogether) {
    const int64_t count = std::min(kTogether, n - first);
    const double share = static_cast<double>(count) / static_cast<double>(n);
    models::VitViews views;
    model.forward(pixels.narrow(0, first, count), /*noise=*/{}, &views);
    size_t at = 0;
    for (const nn::LayerView& view : views.layers) {
      if (!view.attention) continue;
      const AttentionNumbers numbers = attention_numbers(*view.attention);
      Layer& layer = layers[at++];
      layer.mass += share * numbers.mass, layer.entropy += share * numbers.entropy;
      layer.zero_share += share * numbers.zero_share, layer.skipped_share += share * numbers.skipped_share;
      layer.variance += share * view.output.to(at::kDouble).var(-1, /*unbiased=*/false).mean().item<double>();
    }
  }
  train::Values values;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    for (const auto& [name, value] :
         {std::pair("mass", layer.mass), std::pair("entropy", layer.entropy), std::pair("zeros", layer.zero_share),
          std::pair("skipped", layer.skipped_share), std::pair("variance", layer.variance)})
      values.emplace_back(fmt::format("{}/{}", name, i), value);
  }
  return values;
}

}  // namespace hinge::vision
