// The published systems as points in the space of attention's options: one table, for C++ and for Python.
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ops/attention_options.h"

namespace hinge {
namespace {

struct Preset {
  std::string_view name;
  kernels::Activation h;
  double alpha;
  double gain;
  bool bias_log_n;
  kernels::LengthRule length_rule;
};

constexpr std::array<Preset, 7> kPresets = {{
    // name        h                              alpha gain    -log N  N
    {"relu-vit", kernels::Activation::relu, 1.0, 1.0, false, kernels::LengthRule::keys},
    {"reluformer", kernels::Activation::relu, 0.5, std::numbers::sqrt2, false, kernels::LengthRule::visible},  // gain / gamma
    {"relu2", kernels::Activation::relu2, 1.0, 1.0, false, kernels::LengthRule::keys},
    {"sigmoid", kernels::Activation::sigmoid, 0.0, 1.0, true, kernels::LengthRule::visible},
    {"silu", kernels::Activation::silu, 1.0, 1.0, false, kernels::LengthRule::visible},
    {"linear", kernels::Activation::identity, 1.0, 1.0, false, kernels::LengthRule::keys},
    {"softmax", kernels::Activation::softmax, 1.0, 1.0, false, kernels::LengthRule::keys},
}};

constexpr auto kPresetNames = [] {
  std::array<std::string_view, kPresets.size()> names;
  std::transform(kPresets.begin(), kPresets.end(), names.begin(), [](const Preset& preset) { return preset.name; });
  return names;
}();

// The named one, with its gain divided by gamma.
Preset preset_named(std::string_view name, double gamma) {
  Preset preset = kPresets[place_of("preset", name, kPresetNames)];
  TORCH_CHECK(preset.name == "reluformer" || gamma == 1.0, "hinge::attention: gamma belongs to the preset \"reluformer\", got ", gamma,
              " for \"", std::string(preset.name), "\"");
  TORCH_CHECK(std::isfinite(gamma) && gamma > 0, "hinge::attention: gamma must be positive and finite, got ", gamma);
  preset.gain /= gamma;
  return preset;
}

}  // namespace

std::vector<std::string> preset_names() { return {kPresetNames.begin(), kPresetNames.end()}; }

AttentionOptions preset(std::string_view name, double gamma) {
  const Preset preset = preset_named(name, gamma);
  AttentionOptions options;
  options.h = preset.h;
  options.length_rule = preset.length_rule;
  options.bias_log_n = preset.bias_log_n;
  if (preset.alpha != 1.0) options.alpha = preset.alpha;
  if (preset.gain != 1.0) options.gain = preset.gain;
  return options;
}

// For the Python package. The names of the results are those of the options.
TORCH_LIBRARY_FRAGMENT(hinge, m) {
  m.def("presets() -> str[]", &preset_names);
  m.def("preset(str name, float gamma=1) -> (str h, float alpha, float gain, bool bias_log_n, str length_rule)",
        [](c10::string_view name, double gamma) -> std::tuple<std::string, double, double, bool, std::string> {
          const Preset preset = preset_named({name.data(), name.size()}, gamma);
          return {std::string(kernels::activation_name(preset.h)), preset.alpha, preset.gain, preset.bias_log_n,
                  length_rule_name(preset.length_rule)};
        });
}

}  // namespace hinge
