#include "ops/attention_options.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "support/nearest.h"

namespace hinge {
namespace {

constexpr const char* kSavedKey = "attention";

struct OptionsCapsule : torch::CustomClassHolder {
  AttentionOptions options;  // its tensors are undefined: autograd keeps them
  std::array<bool, 4> wanted = {};
};

// Calls f with the tensor of every option that is one.
template <class F> void for_each_tensor(AttentionOptions& options, const F& f) {
  for_each_attention_option([&](const auto& option) {
    auto& value = options.*option.field;
    if constexpr (std::is_same_v<decltype(value), at::Tensor&>) f(value);
    if constexpr (std::is_same_v<decltype(value), PerHead&>) f(value.values);
  });
}

}  // namespace

size_t place_of(const char* what, std::string_view word, std::span<const std::string_view> words) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) {
    const std::string given(word);
    const std::vector<std::string> known(words.begin(), words.end());
    std::string list;
    for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
    const std::optional<std::string> meant = support::nearest(given, known);
    TORCH_CHECK(false, "hinge::attention: unknown ", what, " \"", given, "\"; there are ", list,
                meant ? "; did you mean \"" + *meant + "\"?" : std::string());
  }
  return static_cast<size_t>(found - words.begin());
}

std::string length_rule_name(kernels::LengthRule rule) { return std::string(words_of(rule)[static_cast<size_t>(rule)]); }

std::optional<kernels::LengthRule> parse_length_rule(std::string_view name) {
  const auto found = std::find(kernels::kLengthRuleNames.begin(), kernels::kLengthRuleNames.end(), name);
  if (found == kernels::kLengthRuleNames.end()) return std::nullopt;
  return static_cast<kernels::LengthRule>(found - kernels::kLengthRuleNames.begin());
}

std::vector<std::string> length_rule_names() { return {kernels::kLengthRuleNames.begin(), kernels::kLengthRuleNames.end()}; }

std::string OptionArgument<double>::literal(double value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string attention_options_schema() {
  const AttentionOptions defaults;
  std::string schema;
  for_each_attention_option([&]<typename T>(const AttentionOption<T>& option) {
    schema += std::string(schema.empty() ? "" : ", ") + OptionArgument<T>::kSchema + " " + option.name + "=" +
              OptionArgument<T>::literal(defaults.*option.field);
  });
  return schema;
}

void save_attention(torch::autograd::AutogradContext* ctx, const AttentionOptions& options, torch::autograd::variable_list tensors) {
  const auto wanted = [](const at::Tensor& option) { return option.defined() && option.requires_grad(); };
  auto saved = c10::make_intrusive<OptionsCapsule>();
  saved->options = options;
  saved->wanted = {wanted(options.gain.values), wanted(options.bias.values), wanted(options.alpha.values), wanted(options.attn_mask)};
  for_each_tensor(saved->options, [&](at::Tensor& tensor) {
    tensors.push_back(tensor);
    tensor.reset();
  });
  ctx->save_for_backward(std::move(tensors));
  ctx->saved_data[kSavedKey] = at::IValue::make_capsule(std::move(saved));
}

SavedAttention saved_attention(torch::autograd::AutogradContext* ctx) {
  const auto saved = c10::static_intrusive_pointer_cast<OptionsCapsule>(ctx->saved_data[kSavedKey].toCapsule());
  SavedAttention result{saved->options, saved->wanted, ctx->get_saved_variables()};
  size_t options = 0;
  for_each_tensor(result.options, [&](at::Tensor&) { ++options; });
  auto next = result.tensors.end() - static_cast<std::ptrdiff_t>(options);
  for_each_tensor(result.options, [&](at::Tensor& tensor) { tensor = *next++; });
  result.tensors.resize(result.tensors.size() - options);
  return result;
}

}  // namespace hinge
