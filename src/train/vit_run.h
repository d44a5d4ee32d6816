// A trained vision transformer, from the folder of its run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/vit.h"
#include "train/run_folder.h"
#include "train/vit_config.h"
#include "train/weights.h"

namespace hinge::train {

struct LoadedVit {
  VitTrainConfig config;  // resolved: classes and sizes are filled in
  std::unique_ptr<models::Vit> model;
  std::vector<std::string> classes;
  Checkpoint checkpoint;
};

// What every checkpoint of a vision transformer says beside its weights: the classes' names and the attention's length rule.
nlohmann::json checkpoint_state(const VitTrainConfig& config, const std::vector<std::string>& classes);

// The names that a run goes on with when its checkpoint has some and its data have others: numbers, as imported weights may have, stand for
// any name; for different names it throws std::runtime_error.
std::vector<std::string> common_classes(const std::vector<std::string>& trained, const std::vector<std::string>& found,
                                        const std::string& run);

// Throws std::runtime_error if the run's config has another length rule than its weights were trained with.
void require_length_rule(const VitTrainConfig& config, const Checkpoint& checkpoint, const std::string& run);

// `notes`: what was passed over on the way (unusable checkpoints), for the user. Throws std::runtime_error.
LoadedVit load_vit(const std::string& run, Which which, std::vector<std::string>* notes = nullptr);

}  // namespace hinge::train
