#include "train/adam.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "support/safetensors.h"

namespace hinge::train {

Adam::Adam(const nn::Parameters& parameters, const AdamOptions& options) : parameters_(parameters), options_(options) {
  for (const nn::Parameter& parameter : parameters.all()) {
    m_.push_back(at::zeros(parameter.value.sizes()));
    v_.push_back(at::zeros(parameter.value.sizes()));
  }
}

std::vector<kernels::AdamTensor<float>> Adam::tensors(const Gradients& gradients, double decay) const {
  std::vector<kernels::AdamTensor<float>> all;
  for (size_t i = 0; i < m_.size(); ++i) {
    const nn::Parameter& parameter = parameters_.all()[i];
    if (!gradients[i].defined()) continue;
    all.push_back({parameter.value.data_ptr<float>(), gradients[i].data_ptr<float>(), m_[i].data_ptr<float>(), v_[i].data_ptr<float>(),
                   parameter.value.numel(), parameter.decays ? decay : 0.0});
  }
  return all;
}

double Adam::gradient_norm(const Gradients& gradients, kernels::Parallel& parallel) const {
  return std::sqrt(kernels::squared_norm(tensors(gradients, 0), parallel));
}

void Adam::step(const Gradients& gradients, double lr, double decay, double grad_scale, kernels::Parallel& parallel) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  kernels::adam_step(
      tensors(gradients, decay),
      {lr, options_.beta1, options_.beta2, options_.eps, 1 - std::pow(options_.beta1, t), 1 - std::pow(options_.beta2, t), grad_scale},
      parallel);
  for (const nn::Parameter& parameter : parameters_.all()) parameter.value.unsafeGetTensorImpl()->bump_version();  // for who keeps copies
}

void Adam::save(const std::string& path) const {
  std::vector<support::TensorView> views;
  for (size_t i = 0; i < m_.size(); ++i) {
    const nn::Parameter& parameter = parameters_.all()[i];
    views.push_back({"m." + parameter.name, support::Dtype::kF32, parameter.value.sizes().vec(), m_[i].data_ptr<float>()});
    views.push_back({"v." + parameter.name, support::Dtype::kF32, parameter.value.sizes().vec(), v_[i].data_ptr<float>()});
  }
  support::write_safetensors(path, views);
}

void Adam::load(const std::string& path, int64_t steps) {
  const support::SafetensorsFile file(path);
  for (size_t i = 0; i < m_.size(); ++i)
    for (const auto& [prefix, moment] : {std::pair<const char*, at::Tensor&>{"m.", m_[i]}, {"v.", v_[i]}}) {
      const support::TensorView& stored = file.at(prefix + parameters_.all()[i].name);
      if (stored.dtype != support::Dtype::kF32 || stored.shape != moment.sizes().vec())
        throw std::runtime_error(path + ": " + stored.name + " is not float32 of the shape that the model has");
      std::memcpy(moment.data_ptr<float>(), stored.data, stored.bytes());
    }
  steps_ = steps;
}

void Adam::share(distributed::ProcessGroup& group) {
  at::Tensor steps = at::full({1}, steps_, at::kLong);
  group.broadcast(steps, 0);
  steps_ = steps.item<int64_t>();
  for (std::vector<at::Tensor>* moments : {&m_, &v_})
    for (at::Tensor& moment : *moments) group.broadcast(moment, 0);
}

}  // namespace hinge::train
