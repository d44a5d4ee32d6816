// Numbers about the weights of attention: of one layer, and of all layers of a vision transformer over some images.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/vit.h"
#include "nn/forward.h"
#include "train/trainer.h"

namespace hinge::vision {

struct AttentionNumbers {
  double mass = 0;        // sum of a query's weights, in the mean
  double entropy = 0;     // of a query's weights (their absolute values) made to add up to 1, in nats; queries without weights do not count
  double zero_share = 0;  // of the weights that are exactly 0
  double skipped_share = 0;  // of the work behind the activation that the engine leaves out for that
};

// Over all queries, heads and sequences of the view.
AttentionNumbers attention_numbers(const nn::AttentionView& view);

// Of pixels [n, height, width, channels], for each block i: "mass/i", "entropy/i", "zeros/i" and "skipped/i", the numbers above, and
// "variance/i", the variance of the elements that attention adds to a token, in the mean.
train::Values attention_statistics(const models::Vit& model, const at::Tensor& pixels);

}  // namespace hinge::vision
