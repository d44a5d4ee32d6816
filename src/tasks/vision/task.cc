// Image classification with vision transformers, as the commands see it.
#include "tasks/task.h"

#include <fmt/format.h>

#include "tasks/vision/config.h"
#include "tasks/vision/cost.h"
#include "tasks/vision/evaluate_run.h"
#include "tasks/vision/example.h"
#include "tasks/vision/report.h"
#include "tasks/vision/training.h"

namespace hinge::vision {
namespace {

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

train::TrainResult train_config(const tasks::ConfigSource& source, const std::string& folder, const std::atomic<bool>& stop,
                                support::ProgressOutput output, distributed::ProcessGroup* group) {
  const auto config = tasks::read_config<Config>(source);
  output.write(fmt::format("Training into {}\n", folder));
  return train(config, folder, stop, std::move(output), group);
}

}  // namespace

const tasks::Task& task() {
  static const tasks::Task kTask = {
      .name = "vision",
      .former_name = "vit",
      .describe_config = tasks::describe_config<Config>,
      .train = train_config,
      .resume = resume,
      .changed_keys = tasks::changed_keys<Config>,
      .costs = costs,
      .assumptions = {"images", "classes"},
      .evaluate = evaluate_run,
      .eval_help =
          "--data FORMAT[:FOLDER], e.g. mnist:FOLDER or fashion-mnist; --split NAME, e.g. test or train[:1000]; --classes FILE: "
          "predict only among the classes named in FILE, one per line, and leave images of others out; --set KEY=VALUE: keys of "
          "the data, and keys of the model that leave its weights as they are, e.g. model.image_size=56, for which positions are "
          "resampled; --length RULE: none, "
          "keys, visible, or fixed, which is the number of tokens in training; --pp STEPS: preprocessing, e.g. "
          "'resize(56)|value_range(-1,1)' (default: the run's, resized to the model's image size)",
      .scores = {.best = percent, .columns = {{"accuracy", "accuracy", percent}, {"averaged accuracy", "averaged_accuracy", percent}}},
      .report_title = "Vision transformers compared",
      .curves = {{"train/loss", "Training loss", "loss"},
                 {"eval/accuracy", "Accuracy on the evaluation images", "accuracy"},
                 {"eval/loss", "Loss on the evaluation images", "loss"},
                 {"train/accuracy", "Accuracy on the training batches", "accuracy"}},
      .report_sections = report_sections,
      .example_kind = tasks::ExampleKind::picture,
      .example = example,
  };
  return kTask;
}

}  // namespace hinge::vision
