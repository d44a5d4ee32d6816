// The parameters of a model as a safetensors file.
#pragma once

#include <string>
#include <vector>

#include "nn/parameters.h"

namespace hinge::train {

// Copies the tensors of a file into the model's parameters: the same names and shapes, all of them. Throws std::runtime_error.
void load_weights(const std::string& path, const nn::Parameters& parameters);

// Writes them; with `values`, those in their place, in the same order.
void save_weights(const std::string& path, const nn::Parameters& parameters, const std::vector<at::Tensor>& values = {});

}  // namespace hinge::train
