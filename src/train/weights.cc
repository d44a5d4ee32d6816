#include "train/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "support/hash.h"
#include "support/safetensors.h"

namespace hinge::train {

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

void require_same_weights(const nn::Parameters& parameters, distributed::ProcessGroup& group) {
  std::vector<uint64_t> hashes;
  for (const nn::Parameter& parameter : parameters.all()) {
    const at::Tensor value = parameter.value.contiguous();
    hashes.push_back(support::fnv1a({reinterpret_cast<const char*>(value.data_ptr<float>()), value.nbytes()}));
  }
  const std::string own(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t));
  const std::vector<std::string> all = group.all_gather_bytes(own);
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (size_t i = 0; i < hashes.size(); ++i)
      if (all[rank].compare(i * sizeof(uint64_t), sizeof(uint64_t), all[0], i * sizeof(uint64_t), sizeof(uint64_t)) != 0)
        throw std::runtime_error(fmt::format(
            "the weights of rank {} are no longer those of rank 0; the first that differs is {}: a machine computes wrongly, or "
            "is of another kind",
            rank, parameters.all()[i].name));
}

}  // namespace hinge::train
