#include "tasks/vision/trained_model.h"

#include <fmt/format.h>

#include <stdexcept>

#include "support/utf8.h"
#include "tasks/vision/labels.h"
#include "train/weights.h"

namespace hinge::vision {

nlohmann::json checkpoint_state(const Config& config, const std::vector<std::string>& classes) {
  for (const std::string& name : classes) support::require_utf8("the name of a class", name);
  const AttentionOptions attention = nn::attention_options(config.model.attention, "model.attention").attention;
  return {{"classes", classes}, {"length_rule", length_rule_name(attention.length_rule)}};
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
  const std::string rule = length_rule_name(nn::attention_options(config.model.attention, "model.attention").attention.length_rule);
  const auto trained = checkpoint.read_state([&](const nlohmann::json& state) { return state.value("length_rule", rule); });
  if (trained != rule)
    throw std::runtime_error(
        fmt::format("'{}' was trained with the length rule {}, but model.attention of its config now gives {}: "
                    "put its preset and length back as they were",
                    run, trained, rule));
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

}  // namespace hinge::vision
