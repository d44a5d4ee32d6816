// Attention with the identity activation in linear time: q (k^T v) in place of (q k^T) v, causal by running sums over chunks of keys.
// Called by attention_forward and attention_backward when takes_linear_order() says so.
#pragma once

#include "hinge/kernels/attention.h"

namespace hinge::kernels {

void linear_forward(const AttentionShape&, const AttentionRule&, const AttentionForward<float>&, Parallel&);
void linear_forward(const AttentionShape&, const AttentionRule&, const AttentionForward<double>&, Parallel&);
void linear_backward(const AttentionShape&, const AttentionRule&, const AttentionBackward<float>&, Parallel&);
void linear_backward(const AttentionShape&, const AttentionRule&, const AttentionBackward<double>&, Parallel&);

}  // namespace hinge::kernels
