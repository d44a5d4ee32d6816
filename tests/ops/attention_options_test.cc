// The list of attention's options: every one of them survives the way through the op's arguments and the way to backward.
#include "ops/attention_options.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "hinge/ops/packed_attention.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

// A value that is not the default.
bool changed(bool value) { return !value; }
double changed(double value) { return value + 0.1; }
int64_t changed(int64_t value) { return value + 3; }
std::optional<Window> changed(const std::optional<Window>&) { return Window{4, 5}; }
std::optional<double> changed(const std::optional<double>&) { return 0.3; }
Tensor changed(const Tensor&) { return at::rand({2}); }
PerHead changed(const PerHead&) { return at::rand({2}); }
template <typename T>
requires std::is_enum_v<T> T changed(T value) { return value == T{} ? static_cast<T>(words_of(value).size() - 1) : T{}; }

template <typename T> bool same(const T& a, const T& b) { return a == b; }
bool same(const Tensor& a, const Tensor& b) { return a.defined() == b.defined() && (!a.defined() || at::equal(a, b)); }
bool same(const PerHead& a, const PerHead& b) { return same(a.values, b.values); }

AttentionOptions all_changed() {
  AttentionOptions options;
  for_each_attention_option([&](const auto& option) { options.*option.field = changed(options.*option.field); });
  return options;
}

void expect_equal(const AttentionOptions& a, const AttentionOptions& b) {
  for_each_attention_option([&](const auto& option) { EXPECT_TRUE(same(a.*option.field, b.*option.field)) << option.name; });
}

AttentionOptions through_the_op(const AttentionOptions& options) {
  return std::apply([](const auto&... arguments) { return OptionArguments::from_op(arguments...); }, OptionArguments::to_op(options));
}

TEST(AttentionOptions, SurviveTheArgumentsOfTheOp) {
  const AttentionOptions defaults, options = all_changed();
  for_each_attention_option([&](const auto& option) { EXPECT_FALSE(same(options.*option.field, defaults.*option.field)) << option.name; });
  expect_equal(through_the_op(options), options);
  expect_equal(through_the_op(defaults), defaults);
}

TEST(AttentionOptions, StandInTheSchemasWithTheirDefaults) {
  for (const char* name : {"hinge::attention", "hinge::attention_with_statistics", "hinge::attention_backward"}) {
    const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").schema();
    for_each_attention_option([&]<typename T>(const AttentionOption<T>& option) {
      SCOPED_TRACE(std::string(name) + " " + option.name);
      const auto place = schema.argumentIndexWithName(option.name);
      ASSERT_TRUE(place.has_value());
      const c10::Argument& argument = schema.arguments()[static_cast<size_t>(*place)];
      EXPECT_TRUE(argument.kwarg_only());
      ASSERT_TRUE(argument.default_value().has_value());
      EXPECT_EQ(*argument.default_value(), c10::IValue(OptionArgument<T>::to_op(AttentionOptions().*option.field)));
    });
  }
}

// Saves its options like the functions that compute attention, and shows what its backward finds.
struct Keeps : torch::autograd::Function<Keeps> {
  static inline SavedAttention found;

  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const AttentionOptions& options) {
    save_attention(ctx, options, {x, Tensor()});
    return x.clone();
  }
  static variable_list backward(torch::autograd::AutogradContext* ctx, const variable_list& grads) {
    found = saved_attention(ctx);
    return {grads[0], Tensor()};
  }
};

TEST(AttentionOptions, SurviveTheWayToBackward) {
  AttentionOptions options = all_changed();
  options.bias.values.requires_grad_(true);
  for (const AttentionOptions& given : {options, AttentionOptions()}) {
    const Tensor x = at::rand({3}).requires_grad_(true);
    const Tensor y = Keeps::apply(x, given);
    for (int pass = 0; pass < 2; ++pass) {  // the graph is kept, so it can be gone through again
      Keeps::found = {};
      torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true);
      expect_equal(Keeps::found.options, given);
      EXPECT_EQ(Keeps::found.wanted, (std::array<bool, 4>{false, given.bias.values.defined(), false, false}));
      ASSERT_EQ(Keeps::found.tensors.size(), 2u);
      EXPECT_TRUE(at::equal(Keeps::found.tensors[0], x));
      EXPECT_FALSE(Keeps::found.tensors[1].defined());
    }
  }
  Keeps::found = {};
}

// One of the options changed in place after forward: backward would compute with another one.
TEST(AttentionOptions, ChangedBeforeBackwardAreAnError) {
  const Tensor x = at::rand({1, 2, 3, 8}).requires_grad_(true), qkv = at::rand({1, 3, 48}).requires_grad_(true);
  const auto error = [](const Tensor& input, const auto& run) {
    AttentionOptions options;
    options.gain = at::ones({2});
    const Tensor out = run(options);
    options.gain.values.fill_(2);
    return testing::error_of([&] { torch::autograd::grad({out.sum()}, {input}); });
  };
  const std::string modified = "modified by an inplace operation";
  EXPECT_NE(error(x, [&](const AttentionOptions& options) { return attention(x, x, x, options); }).find(modified), std::string::npos);
  EXPECT_NE(error(qkv, [&](const AttentionOptions& options) { return packed_attention(qkv, 2, {options}).out; }).find(modified),
            std::string::npos);
}

TEST(AttentionOptions, WordsAreDistinctAndUnknownOnesNameTheNearest) {
  for_each_attention_option([&]<typename T>(const AttentionOption<T>& option) {
    if constexpr (std::is_enum_v<T>) {
      const auto words = words_of(T{});
      EXPECT_EQ(std::set<std::string_view>(words.begin(), words.end()).size(), words.size()) << option.name;
    }
  });
  EXPECT_EQ(place_of("length_rule", "visible", kernels::kLengthRuleNames), 3u);
  EXPECT_EQ(testing::error_of([] { place_of("length_rule", "visibel", kernels::kLengthRuleNames); }),
            "hinge::attention: unknown length_rule \"visibel\"; there are none, fixed, keys, visible; did you mean \"visible\"?");
  EXPECT_EQ(testing::error_of([] { place_of("length_rule", "logarithm", kernels::kLengthRuleNames); }),
            "hinge::attention: unknown length_rule \"logarithm\"; there are none, fixed, keys, visible");
}

}  // namespace
}  // namespace hinge
