// The attention op: its schemas, autograd and registration with torch, and the C++ functions that call it. No option is named here unless
// it is differentiable.
#include "hinge/ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/version.h>

#include <array>
#include <limits>
#include <tuple>

#include "hinge/kernels/cpu.h"
#include "ops/attention_impl.h"
#include "ops/attention_options.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor or_undefined(const OptionalTensor& tensor) { return tensor.has_value() ? *tensor : Tensor(); }

// ---- The ops as torch sees them (kernels with flat arguments) and as we do (functions of AttentionOptions)

std::string attention_schema() { return "attention(Tensor q, Tensor k, Tensor v, *, " + attention_options_schema() + ") -> Tensor"; }
std::string forward_schema() {
  return "attention_with_statistics(Tensor q, Tensor k, Tensor v, *, " + attention_options_schema() +
         ", bool statistics=True) -> (Tensor out, Tensor weight_sum, Tensor weight_log, Tensor zero_share, Tensor skipped_share, "
         "Tensor lse)";
}
std::string backward_schema() {
  return "attention_backward(Tensor? grad_out, Tensor? grad_weight_sum, Tensor? grad_weight_log, Tensor q, Tensor k, Tensor v, "
         "Tensor? out, Tensor? lse, Tensor? weight_log, *, " +
         attention_options_schema() +
         ", bool[4] wanted) -> (Tensor dq, Tensor dk, Tensor dv, Tensor dgain, Tensor dbias, Tensor dalpha, Tensor dmask)";
}

// The ops with the options' arguments among theirs.
template <typename... Options> struct Ops {
  using Forward = AttentionOutputs(const Tensor&, const Tensor&, const Tensor&, Options..., bool);
  using Backward = AttentionGradients(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&, const Tensor&,
                                      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, Options...,
                                      std::array<bool, 4>);

  template <auto function>
  static AttentionOutputs forward_kernel(const Tensor& q, const Tensor& k, const Tensor& v, Options... options, bool statistics) {
    return function(q, k, v, OptionArguments::from_op(options...), statistics);
  }

  template <auto function>
  static AttentionGradients backward_kernel(const OptionalTensor& grad_out, const OptionalTensor& grad_weight_sum,
                                            const OptionalTensor& grad_weight_log, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const OptionalTensor& out, const OptionalTensor& lse, const OptionalTensor& weight_log,
                                            Options... options, std::array<bool, 4> wanted) {
    const AttentionBackwardInputs inputs{or_undefined(grad_out),
                                         or_undefined(grad_weight_sum),
                                         or_undefined(grad_weight_log),
                                         or_undefined(out),
                                         or_undefined(lse),
                                         or_undefined(weight_log),
                                         wanted,
                                         {}};
    return function(q, k, v, inputs, OptionArguments::from_op(options...));
  }

  static Tensor attention_kernel(const Tensor& q, const Tensor& k, const Tensor& v, Options... options) {
    return std::get<0>(forward_op().call(q, k, v, options..., /*statistics=*/false));
  }

  static const c10::TypedOperatorHandle<Forward>& forward_op() {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hinge::attention_with_statistics", "").template typed<Forward>();
    return op;
  }

  static const c10::TypedOperatorHandle<Backward>& backward_op() {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hinge::attention_backward", "").template typed<Backward>();
    return op;
  }
};
using AttentionOps = OptionArguments::Into<Ops>;

AttentionOutputs call_forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, bool statistics) {
  return std::apply([&](const auto&... option) { return AttentionOps::forward_op().call(q, k, v, option..., statistics); },
                    OptionArguments::to_op(options));
}

AttentionGradients call_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs,
                                 const AttentionOptions& options) {
  return std::apply(
      [&](const auto&... option) {
        return AttentionOps::backward_op().call(optional_of(inputs.grad_out), optional_of(inputs.grad_weight_sum),
                                                optional_of(inputs.grad_weight_log), q, k, v, optional_of(inputs.out),
                                                optional_of(inputs.lse), optional_of(inputs.weight_log), option..., inputs.wanted);
      },
      OptionArguments::to_op(options));
}

// ---- Autograd

// Saves q, k, v and the options; of softmax also what its backward needs of the forward's results.
class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& /*gain*/,
                               const OptionalTensor& /*bias*/, const OptionalTensor& /*alpha*/, const OptionalTensor& /*attn_mask*/,
                               const AttentionOptions& options, bool statistics) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [out, weight_sum, weight_log, zero_share, skipped_share, lse] = call_forward(q, k, v, options, statistics);

    const bool softmax = options.h == kernels::Activation::softmax;
    save_attention(ctx, options,
                   {q, k, v, softmax ? out : Tensor(), softmax ? lse : Tensor(), softmax && statistics ? weight_log : Tensor()});
    variable_list constant = {zero_share, skipped_share, lse};
    if (!statistics) constant.insert(constant.end(), {weight_sum, weight_log});
    ctx->mark_non_differentiable(constant);
    ctx->set_materialize_grads(false);
    return {out, weight_sum, weight_log, zero_share, skipped_share, lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [options, wanted, tensors] = saved_attention(ctx);
    const AttentionBackwardInputs inputs{grads[0], grads[1], grads[2], tensors[3], tensors[4], grads[2].defined() ? tensors[5] : Tensor(),
                                         wanted,   {}};
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) return variable_list(9);
    const auto [dq, dk, dv, dgain, dbias, dalpha, dmask] = call_backward(tensors[0], tensors[1], tensors[2], inputs, options);
    return {dq,
            dk,
            dv,
            inputs.wanted[0] ? dgain : Tensor(),
            inputs.wanted[1] ? dbias : Tensor(),
            inputs.wanted[2] ? dalpha : Tensor(),
            inputs.wanted[3] ? dmask : Tensor(),
            Tensor(),
            Tensor()};
  }
};

AttentionOutputs forward_with_autograd(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                       bool statistics) {
  const variable_list r = AttentionFunction::apply(q, k, v, optional_of(options.gain.values), optional_of(options.bias.values),
                                                   optional_of(options.alpha.values), optional_of(options.attn_mask), options, statistics);
  return {r[0], r[1], r[2], r[3], r[4], r[5]};
}

// The gradients, as something that cannot be differentiated: the error comes when someone does.
class AttentionBackwardFunction : public torch::autograd::Function<AttentionBackwardFunction> {
 public:
  static variable_list forward(AutogradContext*, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& /*grad_out*/,
                               const OptionalTensor& /*grad_weight_sum*/, const OptionalTensor& /*grad_weight_log*/,
                               const OptionalTensor& /*gain*/, const OptionalTensor& /*bias*/, const OptionalTensor& /*alpha*/,
                               const OptionalTensor& /*attn_mask*/, const AttentionBackwardInputs& inputs,
                               const AttentionOptions& options) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [dq, dk, dv, dgain, dbias, dalpha, dmask] = call_backward(q, k, v, inputs, options);
    return {dq, dk, dv, dgain, dbias, dalpha, dmask};
  }

  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK(false,
                "hinge::attention: its gradients cannot be differentiated once more (double backward is not implemented). Leave out "
                "create_graph, or write this attention in plain tensor operations where second derivatives are needed");
  }
};

AttentionGradients backward_with_autograd(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs,
                                          const AttentionOptions& options) {
  const variable_list r = AttentionBackwardFunction::apply(q, k, v, optional_of(inputs.grad_out), optional_of(inputs.grad_weight_sum),
                                                           optional_of(inputs.grad_weight_log), optional_of(options.gain.values),
                                                           optional_of(options.bias.values), optional_of(options.alpha.values),
                                                           optional_of(options.attn_mask), inputs, options);
  return {r[0], r[1], r[2], r[3], r[4], r[5], r[6]};
}

// Autocast on CPUs casts float32 queries, keys and values to its lower type, as it does for torch's own attention.
AttentionOutputs forward_with_autocast(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                       bool statistics) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
#if TORCH_VERSION_MAJOR >= 2
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCPU);
#else
  const at::ScalarType type = at::autocast::get_autocast_cpu_dtype();
#endif
  const auto cast = [&](const Tensor& tensor) { return at::autocast::cached_cast(type, tensor, at::kCPU); };
  return call_forward(cast(q), cast(k), cast(v), options, statistics);
}

// For the Python package: an option of a schema's type Tensor? that may also be a number, and what its default means.
c10::Dict<std::string, double> per_head_defaults() {
  c10::Dict<std::string, double> defaults;
  for_each_attention_option([&]<typename T>(const AttentionOption<T>& option) {
    if constexpr (std::is_same_v<T, PerHead>) defaults.insert(option.name, option.number);
  });
  return defaults;
}

}  // namespace

// ---- C++ functions

PerHead::PerHead(double value) : values(at::scalar_tensor(value, at::kDouble)) {}

// A seed where dropout needs one and none is given.
AttentionOptions with_seed(const AttentionOptions& options) {
  AttentionOptions seeded = options;
  if (options.dropout > 0 && !options.seed.defined()) seeded.seed = at::randint(std::numeric_limits<int64_t>::max(), {1}, at::kLong);
  return seeded;
}

at::Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return std::get<0>(call_forward(q, k, v, with_seed(options), /*statistics=*/false));
}

AttentionResult attention_with_statistics(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const auto [out, weight_sum, weight_log, zero_share, skipped_share, lse] = call_forward(q, k, v, with_seed(options), /*statistics=*/true);
  return {out, weight_sum, weight_log, zero_share, skipped_share};
}

// ---- Registration

TORCH_LIBRARY(hinge, m) {
  m.def(torch::schema(attention_schema().c_str()), &AttentionOps::attention_kernel);
  m.def(torch::schema(forward_schema().c_str()));
  m.def(torch::schema(backward_schema().c_str()));
  m.def("activations() -> str[]",
        [] { return std::vector<std::string>(kernels::kActivationNames.begin(), kernels::kActivationNames.end()); });
  m.def("simd_target() -> str", &kernels::simd_target);
  m.def("per_head_defaults() -> Dict(str, float)", &per_head_defaults);
}

TORCH_LIBRARY_IMPL(hinge, CPU, m) {
  m.impl("attention_with_statistics", &AttentionOps::forward_kernel<attention_forward_cpu>);
  m.impl("attention_backward", &AttentionOps::backward_kernel<attention_backward_cpu>);
}

// Every device that has nothing of its own.
TORCH_LIBRARY_IMPL(hinge, CompositeExplicitAutograd, m) {
  m.impl("attention_with_statistics", &AttentionOps::forward_kernel<attention_forward_composite>);
  m.impl("attention_backward", &AttentionOps::backward_kernel<attention_backward_composite>);
}

TORCH_LIBRARY_IMPL(hinge, AutocastCPU, m) { m.impl("attention_with_statistics", &AttentionOps::forward_kernel<forward_with_autocast>); }

TORCH_LIBRARY_IMPL(hinge, Autograd, m) {
  m.impl("attention_with_statistics", &AttentionOps::forward_kernel<forward_with_autograd>);
  m.impl("attention_backward", &AttentionOps::backward_kernel<backward_with_autograd>);
}

}  // namespace hinge
