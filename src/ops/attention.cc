// The attention op: its schemas, autograd and registration with torch, and the C++ functions that call it.
#include "hinge/ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "hinge/kernels/cpu.h"
#include "ops/attention_impl.h"

namespace hinge {
namespace {

using at::Tensor;
using OptionalTensor = c10::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

OptionalTensor optional(const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor(); }
Tensor or_undefined(const OptionalTensor& tensor) { return tensor.has_value() ? *tensor : Tensor(); }

// ---- Names

constexpr std::array<std::string_view, 4> kLengthRuleNames = {"none", "fixed", "keys", "visible"};
constexpr std::array<std::string_view, 3> kIdentityOrderNames = {"auto", "quadratic", "linear"};

// Levenshtein: the fewest insertions, deletions and replacements of a letter that make b of a.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char letter : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (letter != b[j])}));
  }
  return row.back();
}

// The place of the name in the list, or one error that names what there is.
template <typename Names> size_t place_of(const char* what, std::string_view name, const Names& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    const auto nearest = std::min_element(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
      return edit_distance(name, a) < edit_distance(name, b);
    });
    std::string known;
    for (std::string_view each : names) known += (known.empty() ? "" : ", ") + std::string(each);
    TORCH_CHECK(false, "hinge::attention: unknown ", what, " \"", std::string(name), "\"; there are ", known, ". Nearest: \"",
                std::string(*nearest), "\"");
  }
  return static_cast<size_t>(found - names.begin());
}

c10::string_view torch_view(std::string_view text) { return c10::string_view(text.data(), text.size()); }
std::string_view standard_view(c10::string_view text) { return std::string_view(text.data(), text.size()); }

// ---- The options as arguments of the torch ops, in the order of this part of their schemas

constexpr const char* kOptionSchema =
    "str h=\"relu\", float? scale=None, Tensor? gain=None, Tensor? bias=None, Tensor? alpha=None, str length_rule=\"keys\", "
    "float length_n=1, bool bias_log_n=False, bool causal=False, Tensor? key_lengths=None, Tensor? q_offsets=None, "
    "Tensor? k_offsets=None, float dropout=0, Tensor? seed=None, str identity_order=\"auto\"";

template <typename... Types> struct TypeList {};
using OptionTypes = TypeList<c10::string_view, c10::optional<double>, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                             c10::string_view, double, bool, bool, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                             double, const OptionalTensor&, c10::string_view>;

AttentionOptions options_from(c10::string_view h, c10::optional<double> scale, const OptionalTensor& gain, const OptionalTensor& bias,
                              const OptionalTensor& alpha, c10::string_view length_rule, double length_n, bool bias_log_n, bool causal,
                              const OptionalTensor& key_lengths, const OptionalTensor& q_offsets, const OptionalTensor& k_offsets,
                              double dropout, const OptionalTensor& seed, c10::string_view identity_order) {
  AttentionOptions options;
  options.h = static_cast<kernels::Activation>(place_of("activation h", standard_view(h), kernels::kActivationNames));
  if (scale.has_value()) options.scale = *scale;
  options.gain = or_undefined(gain);
  options.bias = or_undefined(bias);
  options.alpha = or_undefined(alpha);
  options.length_rule = static_cast<kernels::LengthRule>(place_of("length_rule", standard_view(length_rule), kLengthRuleNames));
  options.length_n = length_n;
  options.bias_log_n = bias_log_n;
  options.causal = causal;
  options.key_lengths = or_undefined(key_lengths);
  options.q_offsets = or_undefined(q_offsets);
  options.k_offsets = or_undefined(k_offsets);
  options.dropout = dropout;
  options.seed = or_undefined(seed);
  options.identity_order =
      static_cast<kernels::IdentityOrder>(place_of("identity_order", standard_view(identity_order), kIdentityOrderNames));
  return options;
}

auto arguments_from(const AttentionOptions& options) {
  return std::make_tuple(
      torch_view(kernels::activation_name(options.h)), options.scale ? c10::optional<double>(*options.scale) : c10::optional<double>(),
      optional(options.gain.values), optional(options.bias.values), optional(options.alpha.values),
      torch_view(kLengthRuleNames[static_cast<size_t>(options.length_rule)]), options.length_n, options.bias_log_n, options.causal,
      optional(options.key_lengths), optional(options.q_offsets), optional(options.k_offsets), options.dropout, optional(options.seed),
      torch_view(kIdentityOrderNames[static_cast<size_t>(options.identity_order)]));
}

// ---- The ops as torch sees them (kernels with flat arguments) and as we do (functions of AttentionOptions)

const std::string kForwardSchema = std::string("attention_with_statistics(Tensor q, Tensor k, Tensor v, *, ") + kOptionSchema +
                                   ", bool statistics=True) -> (Tensor out, Tensor weight_sum, Tensor weight_log, Tensor zero_share, "
                                   "Tensor skipped_share, Tensor lse)";
const std::string kBackwardSchema =
    std::string(
        "attention_backward(Tensor? grad_out, Tensor? grad_weight_sum, Tensor? grad_weight_log, Tensor q, Tensor k, Tensor v, "
        "Tensor? out, Tensor? lse, Tensor? weight_log, *, ") +
    kOptionSchema + ", bool[3] wanted) -> (Tensor dq, Tensor dk, Tensor dv, Tensor dgain, Tensor dbias, Tensor dalpha)";
const std::string kAttentionSchema = std::string("attention(Tensor q, Tensor k, Tensor v, *, ") + kOptionSchema + ") -> Tensor";

template <typename> struct Ops;
template <typename... Options> struct Ops<TypeList<Options...>> {
  using Forward = AttentionOutputs(const Tensor&, const Tensor&, const Tensor&, Options..., bool);
  using Backward = AttentionGradients(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&, const Tensor&,
                                      const Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, Options...,
                                      std::array<bool, 3>);

  template <auto function>
  static AttentionOutputs forward_kernel(const Tensor& q, const Tensor& k, const Tensor& v, Options... options, bool statistics) {
    return function(q, k, v, options_from(options...), statistics);
  }

  template <auto function>
  static AttentionGradients backward_kernel(const OptionalTensor& grad_out, const OptionalTensor& grad_weight_sum,
                                            const OptionalTensor& grad_weight_log, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const OptionalTensor& out, const OptionalTensor& lse, const OptionalTensor& weight_log,
                                            Options... options, std::array<bool, 3> wanted) {
    const AttentionBackwardInputs inputs{or_undefined(grad_out),
                                         or_undefined(grad_weight_sum),
                                         or_undefined(grad_weight_log),
                                         or_undefined(out),
                                         or_undefined(lse),
                                         or_undefined(weight_log),
                                         wanted,
                                         {}};
    return function(q, k, v, inputs, options_from(options...));
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
using AttentionOps = Ops<OptionTypes>;

AttentionOutputs call_forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, bool statistics) {
  return std::apply([&](const auto&... option) { return AttentionOps::forward_op().call(q, k, v, option..., statistics); },
                    arguments_from(options));
}

AttentionGradients call_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs,
                                 const AttentionOptions& options) {
  return std::apply(
      [&](const auto&... option) {
        return AttentionOps::backward_op().call(optional(inputs.grad_out), optional(inputs.grad_weight_sum),
                                                optional(inputs.grad_weight_log), q, k, v, optional(inputs.out), optional(inputs.lse),
                                                optional(inputs.weight_log), option..., inputs.wanted);
      },
      arguments_from(options));
}

// ---- Autograd

// Saves q, k, v and the options; of softmax also what its backward needs of the forward's results.
class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& gain,
                               const OptionalTensor& bias, const OptionalTensor& alpha, const AttentionOptions& options, bool statistics) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [out, weight_sum, weight_log, zero_share, skipped_share, lse] = call_forward(q, k, v, options, statistics);

    const bool softmax = options.h == kernels::Activation::softmax;
    ctx->save_for_backward({q, k, v, options.gain.values, options.bias.values, options.alpha.values, options.key_lengths, options.q_offsets,
                            options.k_offsets, options.seed, softmax ? out : Tensor(), softmax ? lse : Tensor(),
                            softmax && statistics ? weight_log : Tensor()});
    auto& saved = ctx->saved_data;
    saved["h"] = static_cast<int64_t>(options.h);
    saved["scale"] = options.scale ? at::IValue(*options.scale) : at::IValue();
    saved["length_rule"] = static_cast<int64_t>(options.length_rule);
    saved["length_n"] = options.length_n;
    saved["bias_log_n"] = options.bias_log_n;
    saved["causal"] = options.causal;
    saved["dropout"] = options.dropout;
    saved["identity_order"] = static_cast<int64_t>(options.identity_order);
    saved["wants_gain"] = gain.has_value() && gain->requires_grad();
    saved["wants_bias"] = bias.has_value() && bias->requires_grad();
    saved["wants_alpha"] = alpha.has_value() && alpha->requires_grad();

    variable_list constant = {zero_share, skipped_share, lse};
    if (!statistics) constant.insert(constant.end(), {weight_sum, weight_log});
    ctx->mark_non_differentiable(constant);
    ctx->set_materialize_grads(false);
    return {out, weight_sum, weight_log, zero_share, skipped_share, lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list tensors = ctx->get_saved_variables();
    auto& saved = ctx->saved_data;
    AttentionOptions options;
    options.h = static_cast<kernels::Activation>(saved["h"].toInt());
    if (!saved["scale"].isNone()) options.scale = saved["scale"].toDouble();
    options.length_rule = static_cast<kernels::LengthRule>(saved["length_rule"].toInt());
    options.length_n = saved["length_n"].toDouble();
    options.bias_log_n = saved["bias_log_n"].toBool();
    options.causal = saved["causal"].toBool();
    options.dropout = saved["dropout"].toDouble();
    options.identity_order = static_cast<kernels::IdentityOrder>(saved["identity_order"].toInt());
    options.gain = tensors[3];
    options.bias = tensors[4];
    options.alpha = tensors[5];
    options.key_lengths = tensors[6];
    options.q_offsets = tensors[7];
    options.k_offsets = tensors[8];
    options.seed = tensors[9];

    const AttentionBackwardInputs inputs{grads[0],
                                         grads[1],
                                         grads[2],
                                         tensors[10],
                                         tensors[11],
                                         grads[2].defined() ? tensors[12] : Tensor(),
                                         {saved["wants_gain"].toBool(), saved["wants_bias"].toBool(), saved["wants_alpha"].toBool()},
                                         {}};
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) return variable_list(8);
    const auto [dq, dk, dv, dgain, dbias, dalpha] = call_backward(tensors[0], tensors[1], tensors[2], inputs, options);
    return {dq,
            dk,
            dv,
            inputs.wanted[0] ? dgain : Tensor(),
            inputs.wanted[1] ? dbias : Tensor(),
            inputs.wanted[2] ? dalpha : Tensor(),
            Tensor(),
            Tensor()};
  }
};

AttentionOutputs forward_with_autograd(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                       bool statistics) {
  const variable_list r = AttentionFunction::apply(q, k, v, optional(options.gain.values), optional(options.bias.values),
                                                   optional(options.alpha.values), options, statistics);
  return {r[0], r[1], r[2], r[3], r[4], r[5]};
}

// The gradients, as something that cannot be differentiated: the error comes when someone does.
class AttentionBackwardFunction : public torch::autograd::Function<AttentionBackwardFunction> {
 public:
  static variable_list forward(AutogradContext*, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& /*grad_out*/,
                               const OptionalTensor& /*grad_weight_sum*/, const OptionalTensor& /*grad_weight_log*/,
                               const OptionalTensor& /*gain*/, const OptionalTensor& /*bias*/, const OptionalTensor& /*alpha*/,
                               const AttentionBackwardInputs& inputs, const AttentionOptions& options) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [dq, dk, dv, dgain, dbias, dalpha] = call_backward(q, k, v, inputs, options);
    return {dq, dk, dv, dgain, dbias, dalpha};
  }

  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK(false,
                "hinge::attention: its gradients cannot be differentiated once more (double backward is not implemented). Leave out "
                "create_graph, or write this attention in plain tensor operations where second derivatives are needed");
  }
};

AttentionGradients backward_with_autograd(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs,
                                          const AttentionOptions& options) {
  const variable_list r = AttentionBackwardFunction::apply(q, k, v, optional(inputs.grad_out), optional(inputs.grad_weight_sum),
                                                           optional(inputs.grad_weight_log), optional(options.gain.values),
                                                           optional(options.bias.values), optional(options.alpha.values), inputs, options);
  return {r[0], r[1], r[2], r[3], r[4], r[5]};
}

// ---- Presets

struct Preset {
  std::string_view name;
  kernels::Activation h;
  double alpha;
  double gain;
  bool bias_log_n;
  kernels::LengthRule length_rule;
};

constexpr double kSqrt2 = 1.41421356237309504880;
constexpr std::array<Preset, 7> kPresets = {{
    // name        h                              alpha gain    -log N  N
    {"relu-vit", kernels::Activation::relu, 1.0, 1.0, false, kernels::LengthRule::keys},
    {"reluformer", kernels::Activation::relu, 0.5, kSqrt2, false, kernels::LengthRule::visible},  // gain / gamma
    {"relu2", kernels::Activation::relu2, 1.0, 1.0, false, kernels::LengthRule::keys},
    {"sigmoid", kernels::Activation::sigmoid, 0.0, 1.0, true, kernels::LengthRule::visible},
    {"silu", kernels::Activation::silu, 1.0, 1.0, false, kernels::LengthRule::visible},
    {"linear", kernels::Activation::identity, 1.0, 1.0, false, kernels::LengthRule::keys},
    {"softmax", kernels::Activation::softmax, 1.0, 1.0, false, kernels::LengthRule::keys},
}};

const Preset& preset_named(std::string_view name) {
  const std::vector<std::string> names = preset_names();
  return kPresets[place_of("preset", name, names)];
}

double preset_gain(const Preset& preset, double gamma) {
  const bool reluformer = preset.name == "reluformer";
  TORCH_CHECK(reluformer || gamma == 1.0, "hinge::attention: gamma belongs to the preset \"reluformer\", got ", gamma, " for \"",
              std::string(preset.name), "\"");
  TORCH_CHECK(std::isfinite(gamma) && gamma > 0, "hinge::attention: gamma must be positive and finite, got ", gamma);
  return preset.gain / gamma;
}

// The same for the Python package: h, alpha, gain, bias_log_n, length_rule.
std::tuple<std::string, double, double, bool, std::string> preset_op(c10::string_view name, double gamma) {
  const Preset& preset = preset_named(standard_view(name));
  return {std::string(kernels::activation_name(preset.h)), preset.alpha, preset_gain(preset, gamma), preset.bias_log_n,
          std::string(kLengthRuleNames[static_cast<size_t>(preset.length_rule)])};
}

std::vector<std::string> activations_op() { return {kernels::kActivationNames.begin(), kernels::kActivationNames.end()}; }

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

std::string length_rule_name(kernels::LengthRule rule) { return std::string(kLengthRuleNames[static_cast<size_t>(rule)]); }

std::optional<kernels::LengthRule> parse_length_rule(std::string_view name) {
  const auto found = std::find(kLengthRuleNames.begin(), kLengthRuleNames.end(), name);
  if (found == kLengthRuleNames.end()) return std::nullopt;
  return static_cast<kernels::LengthRule>(found - kLengthRuleNames.begin());
}

std::vector<std::string> length_rule_names() { return {kLengthRuleNames.begin(), kLengthRuleNames.end()}; }

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

AttentionOptions preset(std::string_view name, double gamma) {
  const Preset& preset = preset_named(name);
  AttentionOptions options;
  options.h = preset.h;
  options.length_rule = preset.length_rule;
  options.bias_log_n = preset.bias_log_n;
  if (preset.alpha != 1.0) options.alpha = preset.alpha;
  if (const double gain = preset_gain(preset, gamma); gain != 1.0) options.gain = gain;
  return options;
}

// ---- Registration

TORCH_LIBRARY(hinge, m) {
  m.def(torch::schema(kAttentionSchema.c_str()), &AttentionOps::attention_kernel);
  m.def(torch::schema(kForwardSchema.c_str()));
  m.def(torch::schema(kBackwardSchema.c_str()));
  m.def("activations() -> str[]", &activations_op);
  m.def("simd_target() -> str", &kernels::simd_target);
  m.def("presets() -> str[]", &preset_names);
  m.def("preset(str name, float gamma=1) -> (str h, float alpha, float gain, bool bias_log_n, str length_rule)", &preset_op);
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

TORCH_LIBRARY_IMPL(hinge, Autograd, m) {
  m.impl("attention_with_statistics", &AttentionOps::forward_kernel<forward_with_autograd>);
  m.impl("attention_backward", &AttentionOps::backward_kernel<backward_with_autograd>);
}

}  // namespace hinge
