#include "tasks/vision/trained_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "support/config.h"
#include "support/utf8.h"
#include "tasks/vision/labels.h"
#include "train/weights.h"

namespace hinge::vision {

namespace {

std::string length_rule_of(const nn::AttentionConfig& attention) {
  return length_rule_name(nn::attention_options(attention, "model.attention").attention.length_rule);
}

// What a checkpoint says of length rules: that of the attention, and that of the first blocks.
constexpr const char *kLengthRule = "length_rule", *kFirstLengthRule = "first_length_rule";

}  // namespace

nlohmann::json checkpoint_state(const Config& config, const std::vector<std::string>& classes) {
  for (const std::string& name : classes) support::require_utf8("the name of a class", name);
  return {{"classes", classes},
          {kLengthRule, length_rule_of(config.model.attention)},
          {kFirstLengthRule, length_rule_of(config.model.attention_of(0))}};
}

std::vector<std::string> common_classes(const std::vector<std::string>& trained, const std::vector<std::string>& found,
                                        const std::string& run) {
  if (trained.size() != found.size())
    throw std::runtime_error(fmt::format("'{}' was trained with {} classes, but its data have {}", run, trained.size(), found.size()));
  if (are_numbers(trained)) return found;
  if (are_numbers(found)) return trained;
  for (size_t i = 0; i < trained.size(); ++i)
    if (trained[i] != found[i])
      throw std::runtime_error(
          fmt::format("'{}' was trained with other classes than its data have now: class {} was '{}' and is '{}'; "
                      "give it the data it had, or train a new run",
                      run, i, trained[i], found[i]));
  return trained;
}

void require_length_rule(const Config& config, const train::Checkpoint& checkpoint, const std::string& run) {
  for (const auto& [name, attention] :
       {std::pair(kLengthRule, nn::AttentionConfig(config.model.attention)), std::pair(kFirstLengthRule, config.model.attention_of(0))}) {
    const std::string rule = length_rule_of(attention);
    const auto trained = checkpoint.read_state([&, key = name](const nlohmann::json& state) { return state.value(key, rule); });
    if (trained != rule)
      throw std::runtime_error(
          fmt::format("'{}' was trained with the length rule {}, but model.attention of its config now gives {}: "
                      "put its preset and length back as they were",
                      run, trained, rule));
  }
}

std::vector<std::string> class_names(const train::Checkpoint& checkpoint) {
  return checkpoint.read_state([](const nlohmann::json& state) { return state.at("classes").get<std::vector<std::string>>(); });
}

TrainedModel load(const std::string& run, train::Which which, const std::vector<std::string>& changes) {
  TrainedModel trained;
  trained.config = train::read_run_config<Config>(run, changes);
  trained.weights = train::choose_weights(run, which);
  const train::Checkpoint& checkpoint = trained.weights.checkpoint;
  require_length_rule(trained.config, checkpoint, run);
  trained.classes = class_names(checkpoint);
  if (std::ssize(trained.classes) != trained.config.model.classes)
    checkpoint.throw_damaged(fmt::format("it names {} classes, the model has {}", trained.classes.size(), trained.config.model.classes));
  trained.model = std::make_unique<models::Vit>(trained.config.model, 0);
  train::load_weights(trained.weights.path(), trained.model->parameters());
  return trained;
}

void change_model(TrainedModel& trained, const std::vector<std::string>& changes) {
  if (changes.empty()) return;
  Config config = trained.config;
  for (const std::string& change : changes) support::override_config(config, change);
  config.model = models::resolved(config.model);
  auto changed = std::make_unique<models::Vit>(config.model, 0);
  const nn::Parameters &from = trained.model->parameters(), &to = changed->parameters();
  const auto require_same = [&](bool same, const std::string& name) {
    if (!same)
      throw std::runtime_error(fmt::format(
          "--set {}: with this, {} is not that of the trained weights; only keys that leave them as they are can change, such as "
          "model.image_size and model.attention.length",
          fmt::join(changes, " --set "), name));
  };
  const at::NoGradGuard guard;
  for (const nn::Parameter& parameter : from.all()) require_same(to.find(parameter.name), parameter.name);
  for (const nn::Parameter& parameter : to.all()) {
    const nn::Parameter* trained_one = from.find(parameter.name);
    require_same(trained_one, parameter.name);
    at::Tensor value = trained_one->value;
    if (parameter.name == "pos_embed") value = models::resample_position(value, config.model.image_size / *config.model.patch);
    require_same(value.sizes() == parameter.value.sizes(), parameter.name);
    parameter.value.copy_(value);
  }
  trained.config = std::move(config);
  trained.model = std::move(changed);
}

}  // namespace hinge::vision
