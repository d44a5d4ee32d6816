#include "hinge/ops/dense.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "hinge/kernels/layer_norm.h"
#include "hinge/kernels/patches.h"
#include "ops/function.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// `tensor` has these sizes and x's dtype; undefined passes.
void check_like(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef sizes, const Tensor& x) {
  if (tensor.defined()) check_shape(op, name, tensor, sizes, x);
}

// [rows, last dimension], contiguous.
Tensor as_rows(const Tensor& x) { return x.contiguous().view({-1, x.size(-1)}); }

std::vector<int64_t> with_last(const Tensor& x, int64_t last) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

// ---- linear

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const OptionalTensor& bias,
                        const OptionalTensor& residual) {
    const Tensor rows = as_rows(x), weight = w.contiguous();
    const Tensor y = at::empty(with_last(x, w.size(0)), x.options());
    linear_into(rows, weight, tensor_of(bias), residual ? as_rows(*residual) : Tensor(), y.view({-1, w.size(0)}));
    ctx->save_for_backward({rows, weight});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["residual"] = residual.has_value();
    ctx->saved_data["shape"] = x.sizes().vec();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::linear");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor grad = as_rows(grads[0]);
    Tensor dx, dw, dbias;
    if (ctx->needs_input_grad(0)) dx = product(grad, saved[1]).view(ctx->saved_data["shape"].toIntVector());
    if (ctx->needs_input_grad(1)) dw = transposed_product(grad, saved[0]);
    const size_t after = ctx->saved_data["bias"].toBool() ? 3 : 2;  // the inputs that are there are numbered
    if (after == 3 && ctx->needs_input_grad(2)) dbias = column_sums(grad);
    const bool residual = ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(after);
    return {dx, dw, dbias, residual ? grads[0] : Tensor()};
  }
};

// ---- layer norm

template <typename T>
void norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, const Tensor& y, const Tensor& mean,
                  const Tensor& rstd) {
  const int64_t width = x.size(1);
  AtenParallel parallel;
  kernels::layer_norm_forward({x.size(0), 1, width, eps},
                              kernels::LayerNormForward<T>{{x.data_ptr<T>(), width},
                                                           weight.data_ptr<T>(),
                                                           bias.data_ptr<T>(),
                                                           {y.data_ptr<T>(), width},
                                                           mean.data_ptr<T>(),
                                                           rstd.data_ptr<T>()},
                              parallel);
}

template <typename T>
void norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& skip,
                   const Tensor& grad_x, const Tensor& grad_weight, const Tensor& grad_bias) {
  const int64_t width = x.size(1);
  AtenParallel parallel;
  kernels::layer_norm_backward({x.size(0), 1, width, 0},
                               kernels::LayerNormBackward<T>{{grad_y.data_ptr<T>(), width},
                                                             {x.data_ptr<T>(), width},
                                                             weight.data_ptr<T>(),
                                                             mean.data_ptr<T>(),
                                                             rstd.data_ptr<T>(),
                                                             {skip.defined() ? skip.data_ptr<T>() : nullptr, width},
                                                             {grad_x.data_ptr<T>(), width},
                                                             grad_weight.data_ptr<T>(),
                                                             grad_bias.data_ptr<T>()},
                               parallel);
}

class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    const Tensor rows = as_rows(x), w = weight.contiguous(), b = bias.contiguous(), y = at::empty(x.sizes(), x.options());
    const Tensor mean = at::empty({rows.size(0)}, x.options()), rstd = at::empty({rows.size(0)}, x.options());
    (x.scalar_type() == at::kFloat ? norm_forward<float> : norm_forward<double>)(rows, w, b, eps, y, mean, rstd);
    ctx->save_for_backward({rows, w, mean, rstd});
    ctx->set_materialize_grads(false);
    return {y, x};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::layer_norm_fork");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    if (!grads[0].defined()) return {grads[1], Tensor(), Tensor(), Tensor()};
    const Tensor grad_y = as_rows(grads[0]), skip = grads[1].defined() ? as_rows(grads[1]) : Tensor();
    const Tensor dx = at::empty_like(x), dw = at::empty_like(weight), db = at::empty_like(weight);
    (x.scalar_type() == at::kFloat ? norm_backward<float> : norm_backward<double>)(grad_y, x, weight, saved[2], saved[3], skip, dx, dw, db);
    return {dx.view(grads[0].sizes()), dw, db, Tensor()};
  }
};

// ---- cross-entropy

template <typename T>
void cross_entropy_rows(kernels::CrossEntropy kind, const Tensor& logits, const Tensor& labels, const Tensor& second, double lambda,
                        const Tensor& losses, const Tensor& grad) {
  AtenParallel parallel;
  kernels::cross_entropy(kind,
                         kernels::CrossEntropyRows<T>{logits.size(0), logits.size(1), logits.data_ptr<T>(), labels.data_ptr<int64_t>(),
                                                      second.defined() ? second.data_ptr<int64_t>() : nullptr, lambda, losses.data_ptr<T>(),
                                                      grad.defined() ? grad.data_ptr<T>() : nullptr},
                         parallel);
}

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& labels, const OptionalTensor& second, double lambda,
                        int64_t kind, bool for_backward) {
    const Tensor rows = logits.contiguous(), losses = at::empty({rows.size(0)}, rows.options());
    const Tensor grad = for_backward ? at::empty_like(rows) : Tensor();
    (rows.scalar_type() == at::kFloat ? cross_entropy_rows<float> : cross_entropy_rows<double>)(static_cast<kernels::CrossEntropy>(kind),
                                                                                                rows, labels, second.value_or(Tensor()),
                                                                                                lambda, losses, grad);
    if (for_backward) ctx->save_for_backward({grad});
    return losses.mean();
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::cross_entropy");
    const Tensor grad = ctx->get_saved_variables()[0];
    return {grad * (grads[0] / grad.size(0)), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual) {
  constexpr const char* op = "hinge::linear";
  check_floating(op, "x", x);
  TORCH_CHECK(x.dim() >= 1 && w.dim() == 2 && x.size(-1) == w.size(1), op, ": x [..., K] and w [N, K] do not fit: ", x.sizes(), " and ",
              w.sizes());
  check_like(op, "w", w, w.sizes(), x);
  check_like(op, "bias", bias, {w.size(0)}, x);
  check_like(op, "residual", residual, with_last(x, w.size(0)), x);
  return LinearFunction::apply(x, w, optional_of(bias), optional_of(residual));
}

std::pair<Tensor, Tensor> layer_norm_fork(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  constexpr const char* op = "hinge::layer_norm_fork";
  check_floating(op, "x", x);
  TORCH_CHECK(x.dim() >= 1 && x.size(-1) > 0, op, ": x must have a last dimension of at least 1, got ", x.sizes());
  check_like(op, "weight", weight, {x.size(-1)}, x);
  check_like(op, "bias", bias, {x.size(-1)}, x);
  const variable_list r = LayerNormFunction::apply(x, weight, bias, eps);
  return {r[0], r[1]};
}

Tensor cross_entropy(kernels::CrossEntropy kind, const Tensor& logits, const Tensor& labels, const Tensor& second, double lambda) {
  constexpr const char* op = "hinge::cross_entropy";
  check_floating(op, "logits", logits);
  TORCH_CHECK(logits.dim() == 2 && logits.size(0) > 0 && logits.size(1) > 0, op, ": logits must be [rows, classes], got ", logits.sizes());
  TORCH_CHECK(labels.defined(), op, ": labels are undefined");
  for (const Tensor& some : {labels, second}) {
    if (!some.defined()) continue;
    TORCH_CHECK(some.scalar_type() == at::kLong && some.dim() == 1 && some.size(0) == logits.size(0), op, ": labels must be int64 [",
                logits.size(0), "], got ", some.scalar_type(), " ", some.sizes());
    const int64_t least = some.min().item<int64_t>(), most = some.max().item<int64_t>();
    TORCH_CHECK(least >= 0 && most < logits.size(1), op, ": labels must be in [0, ", logits.size(1), "), got ", least < 0 ? least : most);
  }
  TORCH_CHECK(lambda >= 0 && lambda <= 1, op, ": lambda must be in [0, 1], got ", lambda);
  return CrossEntropyFunction::apply(logits, labels.contiguous(), optional_of(second.defined() ? second.contiguous() : second), lambda,
                                     static_cast<int64_t>(kind), any_wants_gradient({logits}));
}

Tensor patches(const Tensor& images, int64_t patch) {
  TORCH_CHECK(images.dim() == 4 && images.scalar_type() == at::kFloat && images.is_cpu(),
              "hinge::patches: images must be float32 [n, height, width, channels] on the CPU, got ", images.scalar_type(), " ",
              images.sizes());
  TORCH_CHECK(patch > 0 && images.size(1) >= patch && images.size(2) >= patch, "hinge::patches: a patch of ", patch,
              " pixels does not fit into images of ", images.size(1), " x ", images.size(2));
  const Tensor from = images.contiguous();
  const int64_t n = from.size(0), height = from.size(1), width = from.size(2), channels = from.size(3);
  const Tensor to = at::empty({n, (height / patch) * (width / patch), channels * patch * patch}, from.options());
  AtenParallel parallel;
  kernels::gather_patches(from.data_ptr<float>(), n, height, width, channels, patch, to.data_ptr<float>(), parallel);
  return to;
}

}  // namespace hinge
