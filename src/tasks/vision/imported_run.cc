#include "tasks/vision/imported_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>

#include "data/error.h"
#include "models/timm_weights.h"
#include "support/config.h"
#include "support/utf8.h"
#include "tasks/vision/trained_model.h"
#include "train/adam.h"
#include "train/weights.h"

namespace hinge::vision {
namespace {

// The images to train on, or why there are none.
struct TrainingImages {
  std::unique_ptr<data::ImageSet> set;
  std::string why;

  explicit TrainingImages(const DataConfig& config) {
    try {
      set = data::open_images(source_of(config, config.train));
    } catch (const std::runtime_error& error) {
      why = fmt::format("the config's data cannot be opened ({})", error.what());
    }
  }
};

std::vector<std::string> class_names(const Config& config, const TrainingImages& images, const support::SafetensorsFile& file,
                                     const ImportOptions& options, std::vector<std::string>& notes) {
  if (!options.classes.empty()) return options.classes;
  std::string why = images.why;
  if (images.set) {
    const std::vector<std::string>& classes = images.set->classes();
    if (config.model.classes == 0 || config.model.classes == static_cast<int64_t>(classes.size())) return classes;
    why = fmt::format("the config's data have {} classes, its model {}", classes.size(), config.model.classes);
  }
  int64_t count = config.model.classes;
  if (count == 0) {
    const support::TensorView* bias = options.head ? file.find("head.bias") : nullptr;
    if (!bias || bias->elements() == 0)
      throw std::runtime_error(
          fmt::format("how many classes there are is not known: {}; set model.classes or name the classes in a file", why));
    count = static_cast<int64_t>(bias->elements());
  }
  notes.push_back(fmt::format("the classes are numbered: {}; a file can name them (--classes FILE)", why));
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

std::vector<std::string> import_timm_run(const std::string& weights, Config config, const std::string& folder,
                                         const ImportOptions& options) {
  const support::SafetensorsFile file(weights);
  std::vector<std::string> notes;
  const TrainingImages images(config.data);
  const std::vector<std::string> classes = class_names(config, images, file, options, notes);
  if (config.model.classes == 0) config.model.classes = static_cast<int64_t>(classes.size());
  if (config.model.classes != static_cast<int64_t>(classes.size()))
    throw std::runtime_error(fmt::format("model.classes is {}, but {} classes are named", config.model.classes, classes.size()));
  config.model = models::resolved(config.model);
  OptimConfig& optim = config.optim;
  if (images.set && !optim.steps && optim.batch > 0)  // without images, `hinge train --resume` fills them in
    optim.steps = steps_of(optim, images.set->size(), optim.epochs, std::numeric_limits<int64_t>::max());
  const models::Vit model(config.model, static_cast<uint64_t>(config.train.seed));
  for (const std::string& note : models::load_timm_weights(file, model, options.head)) notes.push_back(note);

  const std::string name = std::filesystem::path(weights).filename().string();
  support::require_utf8("the file", name);
  const train::Adam adam(model.parameters(), {optim.beta1, optim.beta2, optim.eps});
  train::CheckpointContent content;
  content.files = {{train::kWeights, [&](const std::string& path) { train::save_weights(path, model.parameters()); }},
                   {train::kState, [&](const std::string& path) { adam.save(path); }}};
  content.state = checkpoint_state(config, classes);
  content.state["imported"] = name;
  train::RunFolder run = train::RunFolder::create(folder, support::write_config(config), {{train::kImported, name}});
  run.save_checkpoint(content, 1);
  train::RunStatus status;
  status.state = "stopped";
  status.steps = optim.steps.value_or(0);
  status.message = "imported from " + weights;
  status.values["parameters"] = static_cast<double>(model.parameters().count());
  run.write_status(status);
  return notes;
}

}  // namespace hinge::vision
