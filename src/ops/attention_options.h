// The options of attention as the arguments of a torch op, and on their way from forward to backward. All of it goes over the list in
// hinge/ops/attention.h, so that an option is named there only.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "hinge/ops/attention.h"
#include "ops/function.h"

namespace hinge {

template <typename T> struct AttentionOption {
  const char* name;
  T AttentionOptions::*field;
  double number = 0;  // of PerHead: what every head has if nothing is given
};

inline constexpr std::tuple kAttentionOptions = {
#define HINGE_OPTION(type, name, initial) AttentionOption<type>{#name, &AttentionOptions::name},
#define HINGE_PER_HEAD(name, number)      AttentionOption<PerHead>{#name, &AttentionOptions::name, number},
    HINGE_FOR_EACH_ATTENTION_OPTION(HINGE_OPTION, HINGE_PER_HEAD)
#undef HINGE_OPTION
#undef HINGE_PER_HEAD
};

template <class F> void for_each_attention_option(const F& f) {
  std::apply([&](const auto&... option) { (f(option), ...); }, kAttentionOptions);
}

// ---- words

constexpr std::span<const std::string_view> words_of(kernels::Activation) { return kernels::kActivationNames; }
constexpr std::span<const std::string_view> words_of(kernels::LengthRule) { return kernels::kLengthRuleNames; }
constexpr std::span<const std::string_view> words_of(kernels::IdentityOrder) { return kernels::kIdentityOrderNames; }

// The place of the word in the table, or one error that says what there is. `what` is the name of the option.
size_t place_of(const char* what, std::string_view word, std::span<const std::string_view> words);

// ---- arguments: how a type of option is written in a schema, with its default, and what stands for it in the op's C++ signature

template <typename T> struct OptionArgument;

template <> struct OptionArgument<bool> {
  using Type = bool;
  static constexpr const char* kSchema = "bool";
  static std::string literal(bool value) { return value ? "True" : "False"; }
  static bool to_op(bool value) { return value; }
  static bool from_op(const char* /*name*/, bool value) { return value; }
};

template <> struct OptionArgument<int64_t> {
  using Type = int64_t;
  static constexpr const char* kSchema = "int";
  static std::string literal(int64_t value) { return std::to_string(value); }
  static int64_t to_op(int64_t value) { return value; }
  static int64_t from_op(const char* /*name*/, int64_t value) { return value; }
};

template <> struct OptionArgument<std::optional<Window>> {
  using Type = c10::optional<std::vector<int64_t>>;
  static constexpr const char* kSchema = "int[]?";
  static std::string literal(const std::optional<Window>& /*none*/) { return "None"; }
  static Type to_op(const std::optional<Window>& value) { return value ? Type(std::vector<int64_t>{value->left, value->right}) : Type(); }
  static std::optional<Window> from_op(const char* name, const Type& value) {
    if (!value.has_value()) return std::nullopt;
    TORCH_CHECK(value->size() == 2, "hinge::attention: ", name, " must be two numbers, (left, right), got ", value->size());
    return Window{(*value)[0], (*value)[1]};
  }
};

template <> struct OptionArgument<double> {
  using Type = double;
  static constexpr const char* kSchema = "float";
  static std::string literal(double value);
  static double to_op(double value) { return value; }
  static double from_op(const char* /*name*/, double value) { return value; }
};

template <> struct OptionArgument<std::optional<double>> {
  using Type = c10::optional<double>;
  static constexpr const char* kSchema = "float?";
  static std::string literal(const std::optional<double>& value) { return value ? OptionArgument<double>::literal(*value) : "None"; }
  static Type to_op(const std::optional<double>& value) { return value ? Type(*value) : Type(); }
  static std::optional<double> from_op(const char* /*name*/, const Type& value) {
    return value.has_value() ? std::optional<double>(*value) : std::nullopt;
  }
};

template <> struct OptionArgument<at::Tensor> {
  using Type = const OptionalTensor&;
  static constexpr const char* kSchema = "Tensor?";
  static std::string literal(const at::Tensor& /*undefined*/) { return "None"; }
  static OptionalTensor to_op(const at::Tensor& value) { return optional_of(value); }
  static at::Tensor from_op(const char* /*name*/, Type value) { return value.has_value() ? *value : at::Tensor(); }
};

template <> struct OptionArgument<PerHead> {
  using Tensors = OptionArgument<at::Tensor>;
  using Type = Tensors::Type;
  static constexpr const char* kSchema = Tensors::kSchema;
  static std::string literal(const PerHead& value) { return Tensors::literal(value.values); }
  static OptionalTensor to_op(const PerHead& value) { return Tensors::to_op(value.values); }
  static PerHead from_op(const char* name, Type value) { return Tensors::from_op(name, value); }
};

template <typename T>
requires std::is_enum_v<T>
struct OptionArgument<T> {
  using Type = c10::string_view;
  static constexpr const char* kSchema = "str";
  static std::string literal(T value) { return '"' + std::string(word(value)) + '"'; }
  static Type to_op(T value) { return Type(word(value).data(), word(value).size()); }
  static T from_op(const char* name, Type value) {
    return static_cast<T>(place_of(name, std::string_view(value.data(), value.size()), words_of(T{})));
  }

 private:
  static std::string_view word(T value) { return words_of(T{})[static_cast<size_t>(value)]; }
};

// "str h="relu", float? scale=None, ...": the part of a schema that is the same in every op that takes the options.
std::string attention_options_schema();

// The types of these arguments, and the conversions between them and the struct.
template <typename Options> struct ArgumentsOf;
template <typename... T> struct ArgumentsOf<const std::tuple<AttentionOption<T>...>> {
  template <template <typename...> class Template> using Into = Template<typename OptionArgument<T>::Type...>;

  static AttentionOptions from_op(typename OptionArgument<T>::Type... arguments) {
    AttentionOptions options;
    std::apply([&](const auto&... option) { ((options.*option.field = OptionArgument<T>::from_op(option.name, arguments)), ...); },
               kAttentionOptions);
    return options;
  }
  static auto to_op(const AttentionOptions& options) {
    return std::apply([&](const auto&... option) { return std::make_tuple(OptionArgument<T>::to_op(options.*option.field)...); },
                      kAttentionOptions);
  }
};
using OptionArguments = ArgumentsOf<decltype(kAttentionOptions)>;

// ---- autograd

// What an autograd function that computes attention finds again in its backward.
struct SavedAttention {
  AttentionOptions options;
  std::array<bool, 4> wanted = {};         // of the gradients of gain, bias, alpha and attn_mask
  torch::autograd::variable_list tensors;  // what the function saved besides
};

// In place of ctx->save_for_backward(tensors). Tensors among the options are saved like the others: changing one in place before backward
// is an error.
void save_attention(torch::autograd::AutogradContext* ctx, const AttentionOptions& options, torch::autograd::variable_list tensors);
SavedAttention saved_attention(torch::autograd::AutogradContext* ctx);

}  // namespace hinge
