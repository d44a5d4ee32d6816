#include "cli/translation_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "cli/arguments.h"
#include "train/task_kind.h"
#include "train/trainer.h"

namespace hinge::cli {

void add_translation_model(Command command, TranslationModelOptions& options) {
  command.option("run", options.run, "RUN", "Folder of a translation run that hinge train has made").required();
  command.option("--checkpoint", options.checkpoint, "WHICH",
                 "Which weights: best (of the lowest validation loss), latest, or averaged over the last checkpoints (default: best)");
  command.option("--threads", options.threads, "N", "Threads (default: OMP_NUM_THREADS, else one for every core)");
}

train::LoadedTranslation open_translation(const TranslationModelOptions& options) {
  const std::vector<std::string> known = {"best", "latest", "averaged"};
  if (std::find(known.begin(), known.end(), options.checkpoint) == known.end())
    throw UsageError(fmt::format("--checkpoint '{}' is unknown.{} Allowed: {}", options.checkpoint, suggestion(options.checkpoint, known),
                                 fmt::join(known, ", ")));
  const train::Which which = options.checkpoint == "best"     ? train::Which::best
                             : options.checkpoint == "latest" ? train::Which::latest
                                                              : train::Which::averaged;
  if (train::is_run(options.run) && train::task_of_config(train::config_path(options.run)) != train::TaskKind::translation)
    throw std::runtime_error(options.run + " is a run of images; this command takes a translation run (hinge runs lists what there is)");
  std::vector<std::string> notes;
  train::LoadedTranslation loaded = train::load_translation(options.run, which, &notes);
  for (const std::string& note : notes) fmt::print(stderr, "passing over a checkpoint: {}\n", note);
  train::use_threads(options.threads.empty() ? 0 : parse_whole("--threads", options.threads, 1, 1024));
  return loaded;
}

}  // namespace hinge::cli
