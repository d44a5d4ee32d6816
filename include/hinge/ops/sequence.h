// What a sequence model does around attention and feed-forward layers, as fused ops with autograd: embeddings, residuals with dropout and
// norm, the loss. CPU tensors of float32 (fast) or float64; rows of tokens [..., width]. Dropout is counter-based (kernels/dropout.h): the
// same seed, the same mask, which backward makes again instead of keeping it. Where the rows are some of a larger array, `numbers` (int64,
// one for each row) says which, and they have the masks that they would have there. A second differentiation is not supported.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace hinge {

// drop(scale * weight[token] + positions[place of the token in its sequence]): tokens int64 [L], offsets int64 [sequences + 1],
// weight [V, C], positions [most, C]; the result is [L, C]. Gradients flow to weight and, if it requires one, to positions; sums over
// equal tokens are added in the order of their places, whatever the number of threads.
at::Tensor embed_tokens(const at::Tensor& weight, const at::Tensor& tokens, const at::Tensor& offsets, const at::Tensor& positions,
                        double scale, double dropout = 0, int64_t seed = 0);

// y = residual + drop(x) and its layer norm, in one pass: {norm(y), y}. Backward adds the gradients of both in one pass, too.
std::pair<at::Tensor, at::Tensor> residual_norm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                                                const at::Tensor& bias, double eps, double dropout = 0, int64_t seed = 0,
                                                const at::Tensor& numbers = {});

// x / sqrt(mean(x^2) + eps) * weight over the last dimension.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The cross-entropy of logits = x weight^T with labels int64 [T] whose share `smoothing` is spread evenly over the vocabulary:
//   - (1 - smoothing) log p(label) - smoothing / V sum_v log p(v),
// averaged over rows. Works through the rows in parts: the logits [T, V] never exist as a whole.
struct ProjectedLoss {
  at::Tensor loss;    // scalar
  double nll = 0;     // sum over rows of - log p(label)
  int64_t right = 0;  // rows whose label has the largest logit
};
ProjectedLoss projected_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels, double smoothing);

}  // namespace hinge
