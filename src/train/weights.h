// The parameters of a model as a safetensors file, and as something that all processes of a run must have alike.
#pragma once

#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "nn/parameters.h"

namespace hinge::train {

// Copies the tensors of a file into the model's parameters: the same names and shapes, all of them. Throws std::runtime_error.
void load_weights(const std::string& path, const nn::Parameters& parameters);

// Writes them; with `values`, those in their place, in the same order.
void save_weights(const std::string& path, const nn::Parameters& parameters, const std::vector<at::Tensor>& values = {});

// Throws std::runtime_error, on all processes, if one has other weights than rank 0: says which, and the first parameter that differs.
void require_same_weights(const nn::Parameters& parameters, distributed::ProcessGroup& group);

}  // namespace hinge::train
