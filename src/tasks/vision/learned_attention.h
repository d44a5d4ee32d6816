// The numbers of attention that a vision transformer has learned: alpha, gain and bias.
#pragma once

#include "models/vit.h"
#include "train/trainer.h"

namespace hinge::vision {

// Of what is learned: "alpha", the mean of all; "alpha/3", that of block 3, unless the model shares one; and where several heads have
// their own, "alpha/3/min" and "alpha/3/max". Nothing of what is not learned.
train::Values learned_attention(const models::Vit& model);

}  // namespace hinge::vision
