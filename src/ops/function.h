// What the autograd functions of fused ops share: checks of their arguments with errors that name them, and shapes.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <initializer_list>

namespace hinge {

using OptionalTensor = c10::optional<at::Tensor>;  // LibTorch's functions take no undefined tensors

inline OptionalTensor optional_of(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : c10::nullopt; }
inline at::Tensor tensor_of(const OptionalTensor& tensor) { return tensor ? tensor->contiguous() : at::Tensor(); }

// A tensor that is empty or undefined stands for an array that is not there.
template <typename T> T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() ? tensor.data_ptr<T>() : nullptr;
}

inline void check_floating(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), op, ": ", name, " is undefined");
  TORCH_CHECK(tensor.is_cpu() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble), op, ": ", name,
              " must be a float32 or float64 CPU tensor, got ", tensor.scalar_type(), " on ", tensor.device());
}

inline void check_floating(const char* op, const char* name, const at::Tensor& tensor, int64_t dimensions) {
  check_floating(op, name, tensor);
  TORCH_CHECK(tensor.dim() == dimensions, op, ": ", name, " must have ", dimensions, " dimensions, got the shape ", tensor.sizes());
}

// `tensor` has these sizes and x's dtype.
inline void check_shape(const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef sizes, const at::Tensor& x) {
  TORCH_CHECK(tensor.defined(), op, ": ", name, " is undefined");
  TORCH_CHECK(tensor.sizes() == sizes && tensor.scalar_type() == x.scalar_type() && tensor.is_cpu(), op, ": ", name,
              " must have the shape ", sizes, " and the input's dtype ", x.scalar_type(), ", got ", tensor.sizes(), " and ",
              tensor.scalar_type());
}

inline void check_integers(const char* op, const char* name, const at::Tensor& tensor, int64_t length) {
  TORCH_CHECK(tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kLong && tensor.dim() == 1, op, ": ", name,
              " must be an int64 CPU tensor of one dimension");
  TORCH_CHECK(length < 0 || tensor.numel() == length, op, ": ", name, " must have ", length, " elements, got ", tensor.numel());
}

inline void check_range(const char* op, const char* name, const at::Tensor& numbers, int64_t end) {
  if (numbers.numel() == 0) return;
  const auto [least, most] = at::aminmax(numbers);
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  TORCH_CHECK(low >= 0 && high < end, op, ": ", name, " must be in [0, ", end, "), got ", low < 0 ? low : high);
}

// Where sequences that follow one another begin, and the end of the last: from 0, never decreasing.
inline void check_offsets(const char* op, const char* name, const at::Tensor& offsets) {
  const at::Tensor bounds = offsets.contiguous();
  const int64_t* begin = bounds.data_ptr<int64_t>();
  TORCH_CHECK(bounds.numel() >= 1 && begin[0] == 0 && std::is_sorted(begin, begin + bounds.numel()), op, ": ", name,
              " must start with 0 and never decrease");
}

inline void check_dropout(const char* op, double dropout) {
  TORCH_CHECK(dropout >= 0 && dropout < 1, op, ": dropout must be in [0, 1), got ", dropout);
}

// Gradients made by hand carry no graph; asking for one must not pass silently.
inline void check_only_first_derivative(const char* op) {
  TORCH_CHECK(!at::GradMode::is_enabled(), op, ": its gradients cannot be differentiated once more (double backward is not implemented)");
}

inline bool any_wants_gradient(std::initializer_list<at::Tensor> tensors) {
  if (!at::GradMode::is_enabled()) return false;
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); });
}

// Calls f with a value of the tensor's element type.
template <class F> decltype(auto) with_type_of(const at::Tensor& tensor, const F& f) {
  return tensor.scalar_type() == at::kFloat ? f(float{}) : f(double{});
}

}  // namespace hinge
