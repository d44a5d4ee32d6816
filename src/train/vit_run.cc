#include "train/vit_run.h"

#include <fmt/format.h>

#include <stdexcept>

#include "support/config.h"
#include "support/utf8.h"

namespace hinge::train {
namespace {

bool are_numbers(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != std::to_string(i)) return false;
  return true;
}

}  // namespace

double steps_of(const OptimConfig& config, double epochs, int64_t images) {
  return epochs * static_cast<double>(images) / static_cast<double>(config.batch);
}

data::DataSource source_of(const DataConfig& config, const std::string& split) {
  data::DataSource source;
  source.format = config.format;
  source.path = config.path;
  source.split = split;
  source.label_map = config.label_map;
  const auto size = static_cast<int>(config.synthetic_size);
  source.synthetic.shape = {size, size, static_cast<int>(config.synthetic_channels)};
  source.synthetic.classes = config.synthetic_classes;
  source.synthetic.count = config.synthetic_count;
  return source;
}

kernels::CrossEntropy loss_kind(const OptimConfig& config) {
  return config.loss == "sigmoid" ? kernels::CrossEntropy::sigmoid : kernels::CrossEntropy::softmax;
}

nlohmann::json checkpoint_state(const VitTrainConfig& config, const std::vector<std::string>& classes) {
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

void require_length_rule(const VitTrainConfig& config, const Checkpoint& checkpoint, const std::string& run) {
  const std::string rule = length_rule_name(nn::attention_options(config.model.attention, "model.attention").attention.length_rule);
  if (const std::string trained = checkpoint.state.value("length_rule", rule); trained != rule)
    throw std::runtime_error(
        fmt::format("'{}' was trained with the length rule {}, but model.attention of its config now gives {}: "
                    "put its preset and length back as they were",
                    run, trained, rule));
}

LoadedVit load_vit(const std::string& run, Which which, std::vector<std::string>* notes) {
  if (!is_run(run)) throw std::runtime_error(run + " is not a run: it holds no config.toml (hinge train makes runs)");
  if (which == Which::averaged) throw std::runtime_error(run + " has no averaged weights: vision runs make none");
  LoadedVit loaded;
  support::read_config(loaded.config, config_path(run));
  const CheckpointSearch search = which == Which::best ? best_checkpoint(run) : latest_checkpoint(run);
  if (notes) *notes = search.skipped;
  if (!search.found) throw std::runtime_error(run + " holds no checkpoint yet");
  loaded.checkpoint = *search.found;
  require_length_rule(loaded.config, loaded.checkpoint, run);
  loaded.classes = loaded.checkpoint.state.at("classes").get<std::vector<std::string>>();
  loaded.model = std::make_unique<models::Vit>(loaded.config.model, 0);
  load_weights(loaded.checkpoint.file("weights.safetensors"), loaded.model->parameters());
  return loaded;
}

}  // namespace hinge::train
