#include "train/vit_run.h"

#include <stdexcept>

#include "support/config.h"

namespace hinge::train {

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
  const AttentionOptions attention = nn::attention_options(config.model.attention);
  return {{"classes", classes}, {"length_rule", length_rule_name(attention.length_rule)}};
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
  loaded.classes = loaded.checkpoint.state.at("classes").get<std::vector<std::string>>();
  loaded.model = std::make_unique<models::Vit>(loaded.config.model, 0);
  load_weights(loaded.checkpoint.file("weights.safetensors"), loaded.model->parameters());
  return loaded;
}

}  // namespace hinge::train
