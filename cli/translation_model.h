// What the commands that use a trained translation model have in common.
#pragma once

#include <string>

#include "cli/command.h"
#include "train/translation_run.h"

namespace hinge::cli {

struct TranslationModelOptions {
  std::string run, checkpoint = "best", threads;
};
// The arguments RUN, --checkpoint and --threads.
void add_translation_model(Command command, TranslationModelOptions& options);

// The model; says on standard error which checkpoints had to be passed over. Sets the number of threads.
train::LoadedTranslation open_translation(const TranslationModelOptions& options);

}  // namespace hinge::cli
