// Weights of timm's vision transformers, in and out. Parameters have timm's names already; what differs:
//   * with pool = tok, timm's position embedding has an entry for the class token, which comes first; ours is part of cls_token
//   * with pool_first, timm calls the last norm fc_norm
//   * a fixed position embedding (sinusoidal) is no parameter of ours and a tensor of timm's file
//   * the stem's convolutions, gates and learned numbers of attention have names of ours only
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/vit.h"
#include "support/safetensors.h"

namespace hinge::models {

// The model's weights under timm's names; tensors are float32 and may share the model's memory.
std::vector<std::pair<std::string, at::Tensor>> timm_weights(const Vit& model);

// Of a file's names, those of parts that timm's vision transformers do not have.
bool has_counterpart_in_timm(const std::string& name);

// Copies the file's weights into the model; numbers of other floating types are converted, a position embedding of another resolution is
// resampled. Without `head`, the file's head is passed over and the model's stays as it is.
// Returns what a user should know. Throws std::runtime_error for a tensor that is missing, left over or of another shape, with what to do.
std::vector<std::string> load_timm_weights(const support::SafetensorsFile& file, const Vit& model, bool head = true);

}  // namespace hinge::models
