#include "train/weights.h"

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

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

}  // namespace hinge::train
