// A trained vision transformer, from the folder of its run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/vit.h"
#include "tasks/vision/config.h"
#include "train/run_folder.h"

namespace hinge::vision {

struct TrainedModel {
  Config config;  // resolved: classes and sizes are filled in
  std::unique_ptr<models::Vit> model;
  std::vector<std::string> classes;
  train::ChosenWeights weights;
};

// What every checkpoint of a vision transformer says beside its weights: the classes' names and the attention's length rule.
nlohmann::json checkpoint_state(const Config& config, const std::vector<std::string>& classes);

// The names of the classes of a checkpoint.
std::vector<std::string> class_names(const train::Checkpoint& checkpoint);

// The names that a run goes on with when its checkpoint has some and its data have others: numbers, as imported weights may have, stand for
// any name; for different names it throws std::runtime_error.
std::vector<std::string> common_classes(const std::vector<std::string>& trained, const std::vector<std::string>& found,
                                        const std::string& run);

// Throws std::runtime_error if the run's config has another length rule than its weights were trained with.
void require_length_rule(const Config& config, const train::Checkpoint& checkpoint, const std::string& run);

// With changes of the config ("data.eval=test"), which the weights must fit. Throws std::runtime_error.
TrainedModel load(const std::string& run, train::Which which, const std::vector<std::string>& changes = {});

// The same weights in a model that differs by changes of the config ("model.image_size=56"): learned positions are resampled, all other
// weights stay. Throws std::runtime_error for changes that need other weights.
void change_model(TrainedModel& trained, const std::vector<std::string>& changes);

}  // namespace hinge::vision
