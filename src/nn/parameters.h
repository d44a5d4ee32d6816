// The parameters of a model: an ordered list of named tensors. Modules keep their own handles; optimisers, checkpoints and tables of
// parameters go through this list.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hinge::nn {

constexpr double kNormEps = 1e-6;  // of every layer norm and RMS norm

struct Parameter {
  std::string name;
  at::Tensor value;     // requires grad
  bool decays = false;  // takes weight decay: kernels of dense layers do, biases, norms and embeddings do not
};

class Parameters {
 public:
  // Adds `value` and returns it with gradients on.
  at::Tensor add(std::string name, const at::Tensor& value, bool decays);

  const std::vector<Parameter>& all() const { return all_; }
  const Parameter* find(const std::string& name) const;  // nullptr if there is none
  int64_t count() const;                                 // elements of all

 private:
  std::vector<Parameter> all_;
};

// How kernels start: uniform with Xavier's limit, or as LeCun says: normal with the variance 1 / in, cut off at two deviations.
enum class Init { xavier, lecun };
inline std::vector<std::pair<std::string, Init>> config_words(Init) { return {{"xavier", Init::xavier}, {"lecun", Init::lecun}}; }

// Where modules put their parameters: under a prefix, with the random numbers of one generator.
struct Builder {
  Parameters& parameters;
  at::Generator generator;
  std::string prefix = {};

  Builder under(const std::string& name) const { return {parameters, generator, prefix + name + "."}; }
  at::Tensor kernel(const std::string& name, at::IntArrayRef sizes, Init init) const;  // [out, in, ...]: of a dense layer or a convolution
  at::Tensor xavier(const std::string& name, int64_t out, int64_t in) const { return kernel(name, {out, in}, Init::xavier); }
  at::Tensor normal(const std::string& name, at::IntArrayRef sizes, double deviation, bool decays = false) const;
  at::Tensor constant(const std::string& name, at::IntArrayRef sizes, double value, bool decays = false) const;
};

}  // namespace hinge::nn
