#include "nn/parameters.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <numbers>

namespace hinge::nn {

at::Tensor Parameters::add(std::string name, const at::Tensor& value, bool decays) {
  TORCH_CHECK(!find(name), "there are two parameters named ", name);
  all_.push_back({std::move(name), value.detach().requires_grad_(true), decays});
  return all_.back().value;
}

const Parameter* Parameters::find(const std::string& name) const {
  for (const Parameter& parameter : all_)
    if (parameter.name == name) return &parameter;
  return nullptr;
}

int64_t Parameters::count() const {
  int64_t count = 0;
  for (const Parameter& parameter : all_) count += parameter.value.numel();
  return count;
}

at::Tensor Builder::kernel(const std::string& name, at::IntArrayRef sizes, Init init) const {
  const auto out = static_cast<double>(sizes[0]), in = static_cast<double>(c10::multiply_integers(sizes.slice(1)));
  at::Tensor value;
  if (init == Init::xavier) {
    const double limit = std::sqrt(6.0 / (in + out));
    value = at::empty(sizes).uniform_(-limit, limit, generator);
  } else {
    constexpr double kLimit = 2, kDeviation = 0.87962566103423978;  // of what is left of a standard normal between -2 and 2
    const double limit = std::erf(kLimit / std::numbers::sqrt2);
    value = at::erfinv(at::empty(sizes, at::kDouble).uniform_(-limit, limit, generator));
    value = value.mul_(std::numbers::sqrt2 / (kDeviation * std::sqrt(in))).to(at::kFloat);
  }
  return parameters.add(prefix + name, value, /*decays=*/true);
}

at::Tensor Builder::normal(const std::string& name, at::IntArrayRef sizes, double deviation, bool decays) const {
  return parameters.add(prefix + name, at::empty(sizes).normal_(0, deviation, generator), decays);
}

at::Tensor Builder::constant(const std::string& name, at::IntArrayRef sizes, double value, bool decays) const {
  return parameters.add(prefix + name, at::full(sizes, value), decays);
}

}  // namespace hinge::nn
