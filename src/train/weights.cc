#include "train/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "support/hash.h"
#include "support/safetensors.h"

namespace hinge::train {
namespace {

// Of each parameter.
std::vector<uint64_t> hashes_of(const nn::Parameters& parameters) {
  std::vector<uint64_t> hashes;
  for (const nn::Parameter& parameter : parameters.all()) {
    const at::Tensor value = parameter.value.contiguous();
    hashes.push_back(support::fnv1a({static_cast<const char*>(value.data_ptr()), value.nbytes()}));
  }
  return hashes;
}

}  // namespace

void load_weights(const std::string& path, const nn::Parameters& parameters) {
  const support::SafetensorsFile file(path);
  for (const nn::Parameter& parameter : parameters.all()) {
    const support::TensorView& stored = file.at(parameter.name);
    const std::vector<int64_t> shape = parameter.value.sizes().vec();
    if (stored.dtype != support::Dtype::kF32 || stored.shape != shape)
      throw std::runtime_error(path + ": " + parameter.name +
                               " is not float32 of the shape that the model has; the file belongs to another config");
    std::memcpy(parameter.value.data_ptr<float>(), stored.data, stored.bytes());
    parameter.value.unsafeGetTensorImpl()->bump_version();  // for who keeps copies
  }
  if (file.tensors().size() != parameters.all().size())
    for (const support::TensorView& stored : file.tensors())
      if (!parameters.find(stored.name))
        throw std::runtime_error(path + ": " + stored.name + " is no parameter of the model; the file belongs to another config");
}

void save_weights(const std::string& path, const nn::Parameters& parameters, const std::vector<at::Tensor>& values) {
  std::vector<support::TensorView> views;
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const nn::Parameter& parameter = parameters.all()[i];
    const at::Tensor& value = values.empty() ? parameter.value : values[i];
    views.push_back({parameter.name, support::Dtype::kF32, value.sizes().vec(), value.data_ptr<float>()});
  }
  support::write_safetensors(path, views, {{"format", "pt"}});
}

uint64_t hash_of_weights(const nn::Parameters& parameters) {
  uint64_t hash = 0;
  for (const uint64_t of_parameter : hashes_of(parameters)) hash = hash * 31 + of_parameter;
  return hash;
}

void require_same_weights(const nn::Parameters& parameters, distributed::ProcessGroup& group) {
  const std::vector<uint64_t> hashes = hashes_of(parameters);
  const std::vector<std::string> all =
      group.all_gather_bytes({reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)});
  // max_element takes the first of several: rank 0's if there is no majority.
  const std::string& most = *std::max_element(all.begin(), all.end(), [&](const std::string& left, const std::string& right) {
    return std::count(all.begin(), all.end(), left) < std::count(all.begin(), all.end(), right);
  });
  std::vector<size_t> others;
  size_t parameter = hashes.size();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == most) continue;
    others.push_back(rank);
    const auto byte = std::mismatch(most.begin(), most.end(), all[rank].begin()).first - most.begin();
    parameter = std::min(parameter, static_cast<size_t>(byte) / sizeof(uint64_t));
  }
  if (others.empty()) return;
  throw DifferentWeightsError(fmt::format(
      "the weights of rank {} are not those of {}: {} is the first parameter that differs. Its machine computes wrongly or is of another "
      "kind: leave it out, and resume the run from its last checkpoint",
      fmt::join(others, ", "), others.size() + 1 == all.size() ? "the other rank" : "the other ranks", parameters.all()[parameter].name));
}

}  // namespace hinge::train
