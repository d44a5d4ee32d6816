// Attention with the identity activation in linear time: q (k^T v) in place of (q k^T) v, causal by running sums over chunks of keys.
// Called by attention_forward and attention_backward when takes_linear_order() says so.
#pragma once

#include "hinge/kernels/attention.h"

namespace hinge::kernels {

template <typename S, typename T>
void linear_forward(const AttentionShape&, const AttentionRule&, const AttentionForward<S, T>&, Parallel&);
template <typename S, typename T>
void linear_backward(const AttentionShape&, const AttentionRule&, const AttentionBackward<S, T>&, Parallel&);

}  // namespace hinge::kernels
