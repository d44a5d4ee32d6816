// What a config trains, before the rest of it is read: its key `task`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/config.h"

namespace hinge::train {

enum class TaskKind { vit, translation };
inline std::vector<std::pair<std::string, TaskKind>> config_words(TaskKind) {
  return {{"vit", TaskKind::vit}, {"translation", TaskKind::translation}};
}

// Without the key it is vit. Throws support::ConfigError for a file that cannot be read and for a task that there is not.
TaskKind task_of_config(const std::string& path);
// Of a config that was read before; a task that there is not is vit.
TaskKind task_of(const support::FlatConfig& config);

}  // namespace hinge::train
