// The layers of a transformer around attention as fused ops with autograd, on CPU tensors of float32 (fast) or float64.
// Rows: every leading dimension of x is one; weights have LibTorch's order [out, in]. A second differentiation is not supported.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "hinge/kernels/cross_entropy.h"

namespace hinge {

// x w^T + bias + residual; bias and residual may be undefined.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {}, const at::Tensor& residual = {});

// The layer norm of x over its last dimension, and x itself. Going on with the second for the branch around the norm lets backward add
// the two gradients in the norm's own pass.
std::pair<at::Tensor, at::Tensor> layer_norm_fork(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

// The mean over rows of the cross-entropy of logits [R, C] (kernels/cross_entropy.h says of which kind) with labels [R] (int64) and, for
// mixup, second labels of share 1 - lambda.
at::Tensor cross_entropy(kernels::CrossEntropy kind, const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& second = {},
                         double lambda = 1.0);

// Images [n, height, width, channels] as rows of patches [n, tokens, channels * patch * patch]; no gradient.
at::Tensor patches(const at::Tensor& images, int64_t patch);

}  // namespace hinge
