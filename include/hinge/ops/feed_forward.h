// The feed-forward layer of a transformer as one op with autograd, on CPU tensors of float32 (fast) or float64.
//
// Seen as the papers see it, this is attention to parameters: fc1's rows are the keys, fc2's columns the values, and the activation turns
// scores into weights. That is why softmax, which runs along the hidden units, is one of the activations here, too.
#pragma once

#include <ATen/core/Tensor.h>

#include "hinge/kernels/activations.h"

namespace hinge {

// drop(activation(x fc1^T + fc1_bias)) fc2^T + fc2_bias + residual; x [..., C], fc1 [W, C], fc2 [N, W], W hidden units. fc2_bias and
// residual may be undefined. `dropout` drops hidden units; `seed` says which ones, `numbers` as in sequence.h. A second differentiation is
// not supported.
at::Tensor feed_forward(kernels::Activation activation, const at::Tensor& x, const at::Tensor& fc1, const at::Tensor& fc1_bias,
                        const at::Tensor& fc2, const at::Tensor& fc2_bias, const at::Tensor& residual = {}, double dropout = 0,
                        int64_t seed = 0, const at::Tensor& numbers = {});

}  // namespace hinge
