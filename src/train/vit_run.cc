#include "train/vit_run.h"

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

#include "support/config.h"
#include "support/safetensors.h"

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

void load_weights(const std::string& path, const nn::Parameters& parameters) {
  const support::SafetensorsFile file(path);
  for (const nn::Parameter& parameter : parameters.all()) {
    const support::TensorView& stored = file.at(parameter.name);
    const std::vector<int64_t> shape = parameter.value.sizes().vec();
    if (stored.dtype != support::Dtype::kF32 || stored.shape != shape)
      throw std::runtime_error(path + ": " + parameter.name + " is not float32 of the shape that the model has; the file belongs to another config");
    std::memcpy(parameter.value.data_ptr<float>(), stored.data, stored.bytes());
  }
  if (file.tensors().size() != parameters.all().size())
    for (const support::TensorView& stored : file.tensors())
      if (!parameters.find(stored.name))
        throw std::runtime_error(path + ": " + stored.name + " is no parameter of the model; the file belongs to another config");
}

void save_weights(const std::string& path, const nn::Parameters& parameters) {
  std::vector<support::TensorView> views;
  for (const nn::Parameter& parameter : parameters.all())
    views.push_back({parameter.name, support::Dtype::kF32, parameter.value.sizes().vec(), parameter.value.data_ptr<float>()});
  support::write_safetensors(path, views, {{"format", "pt"}});
}

LoadedVit load_vit(const std::string& run, Which which, std::vector<std::string>* notes) {
  if (!is_run(run)) throw std::runtime_error(run + " is not a run: it holds no config.toml (hinge train makes runs)");
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
