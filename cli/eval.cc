// hinge eval: how well a trained model does on a set of images.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "eval/labels.h"
#include "eval/model_input.h"
#include "support/progress.h"
#include "train/evaluate.h"

namespace hinge::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::string data, split, classes;
  bool json = false;
};

// The split to test on, where none is named.
std::string test_split(const data::DataSource& source) {
  const std::vector<std::string> there = data::splits(source);
  for (const char* name : {"test", "val", "validation"})
    if (std::find(there.begin(), there.end(), name) != there.end()) return name;
  return there.front();
}

double accuracy(const train::ClassCount& count) {
  return count.images ? static_cast<double>(count.right) / static_cast<double>(count.images) : 0;
}

// All classes, or those that do worst if there are too many for a terminal.
void print_classes(const train::Evaluation& result, const std::vector<std::string>& names) {
  constexpr size_t kMost = 100, kWorst = 20;
  std::vector<size_t> order;
  for (size_t i = 0; i < names.size(); ++i)
    if (result.classes[i].images > 0) order.push_back(i);
  const bool some = order.size() > kMost;
  if (some) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return accuracy(result.classes[a]) < accuracy(result.classes[b]); });
    fmt::print("The {} of {} classes that do worst (--json has all):\n", kWorst, order.size());
    order.resize(kWorst);
  }
  size_t width = 5;
  for (const size_t i : order) width = std::max(width, names[i].size());
  fmt::print("  {:<{}}  {:>7}  {:>8}\n", "class", width, "images", "accuracy");
  for (const size_t i : order)
    fmt::print("  {:<{}}  {:>7}  {:>7.2f}%  {}\n", names[i], width, result.classes[i].images, 100 * accuracy(result.classes[i]),
               support::bar(accuracy(result.classes[i]), 30));
}

nlohmann::json to_json(const train::Evaluation& result, const std::vector<std::string>& names) {
  nlohmann::json classes = nlohmann::json::array();
  for (size_t i = 0; i < names.size(); ++i)
    classes.push_back({{"class", names[i]}, {"images", result.classes[i].images}, {"right", result.classes[i].right}});
  return {{"images", result.images}, {"top1", result.accuracy()}, {"top5", result.top5_accuracy()},
          {"loss", result.loss},     {"skipped", result.skipped}, {"classes", classes}};
}

int eval(const EvalOptions& options) {
  const train::LoadedVit loaded = open_model(options.model);
  const train::VitTrainConfig& config = loaded.config;
  const train::DataConfig data = options.data.empty() ? config.data : parse_data("--data", options.data, config.data);
  std::string split = options.split;
  if (split.empty()) split = options.data.empty() ? data.eval : test_split(train::source_of(data, "test"));
  const std::shared_ptr<const data::ImageSet> images = data::open_images(train::source_of(data, split));
  const std::vector<std::string> only = options.classes.empty() ? std::vector<std::string>() : read_names(options.classes);
  const eval::LabelledImages labelled = eval::match_labels(eval::with_channels(images, config.model.channels), loaded.classes, only);

  train::EvaluationOptions how;
  how.threads = static_cast<int>(std::max<int64_t>(1, config.data.threads));
  how.on_error = data::parse_on_error(config.data.on_error);
  how.loss = train::loss_kind(config.optim);
  how.among = labelled.among;
  train::Evaluation result;
  {
    support::Progress progress("eval", labelled.images->size());
    how.progress = [&](int64_t done, int64_t) { progress.update(done, {}); };
    result = train::evaluate(*loaded.model, labelled.images, eval::input_pipeline(config), how);
  }
  const std::vector<std::string>& names = labelled.images->classes();
  if (options.json) {
    nlohmann::json json = to_json(result, names);
    json.update({{"run", options.model.run},
                 {"step", loaded.checkpoint.step},
                 {"format", data.format},
                 {"split", split},
                 {"left_out", labelled.left_out}});
    fmt::print("{}", json_text(json));
    return 0;
  }
  fmt::print("{} at step {} on {} images of {}, split {}\n", options.model.run, loaded.checkpoint.step, result.images, data.format, split);
  if (!labelled.among.empty())
    fmt::print("predicting among {} of {} classes; {} images of other classes are left out\n", labelled.among.size(), loaded.classes.size(),
               labelled.left_out);
  fmt::print("  top-1  {:.2f}%\n  top-5  {:.2f}%\n  loss   {:.4f}\n", 100 * result.accuracy(), 100 * result.top5_accuracy(), result.loss);
  for (const std::string& skipped : result.skipped) fmt::print("  skipped {}\n", skipped);
  print_classes(result, names);
  return 0;
}

}  // namespace

void add_eval(Command parent) {
  auto options = std::make_shared<EvalOptions>();
  Command command = parent.subcommand("eval", "Measure a trained model on a set of images: top-1, top-5, loss, each class");
  add_model(command, options->model);
  command.option("--data", options->data, "FORMAT[:FOLDER]",
                 "Another set of images, e.g. mnist:FOLDER or fashion-mnist (default: the run's)");
  command.option("--split", options->split, "NAME", "Which part of it, e.g. test or train[:1000] (default: the run's, or test)");
  command.option("--classes", options->classes, "FILE",
                 "Predict only among the classes named in FILE, one a line; images of others are left out");
  command.flag("--json", options->json, "Print JSON instead of text");
  command.run([options] { return eval(*options); });
}

}  // namespace hinge::cli
