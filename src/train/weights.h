// The parameters of a model as a safetensors file, and as something that all processes of a run must have alike.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "nn/parameters.h"

namespace hinge::train {

// Copies the tensors of a file into the model's parameters: the same names and shapes, all of them. Throws std::runtime_error.
void load_weights(const std::string& path, const nn::Parameters& parameters);

// Writes them; with `values`, those in their place, in the same order.
void save_weights(const std::string& path, const nn::Parameters& parameters, const std::vector<at::Tensor>& values = {});

// A number that depends on all of them.
uint64_t hash_of_weights(const nn::Parameters& parameters);

// The weights of a process are not those that most have, or not those of rank 0 if there is no majority: none can be trusted.
struct DifferentWeightsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Throws DifferentWeightsError, on all processes, unless all have the same weights, bit for bit: says which ranks have others, and the
// first parameter that differs.
void require_same_weights(const nn::Parameters& parameters, distributed::ProcessGroup& group);

}  // namespace hinge::train
