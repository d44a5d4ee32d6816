#include "tasks/vision/evaluate_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "data/formats.h"
#include "support/progress.h"
#include "tasks/vision/evaluation.h"
#include "tasks/vision/labels.h"
#include "tasks/vision/learned_attention.h"
#include "tasks/vision/model_input.h"
#include "tasks/vision/trained_model.h"

namespace hinge::vision {
namespace {

// The split to test on, where none is named.
std::string test_split(const data::DataSource& source) {
  const std::vector<std::string> there = data::splits(source);
  for (const char* name : {"test", "val", "validation"})
    if (std::find(there.begin(), there.end(), name) != there.end()) return name;
  return there.front();
}

double accuracy(const ClassCount& count) { return count.images ? static_cast<double>(count.right) / static_cast<double>(count.images) : 0; }

// All classes, or those that do worst if there are too many for a terminal.
std::string class_table(const Evaluation& result, const std::vector<std::string>& names) {
  constexpr size_t kMost = 100, kWorst = 20;
  std::vector<size_t> order;
  for (size_t i = 0; i < names.size(); ++i)
    if (result.classes[i].images > 0) order.push_back(i);
  std::string text;
  if (order.size() > kMost) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return accuracy(result.classes[a]) < accuracy(result.classes[b]); });
    text += fmt::format("The {} of {} classes that do worst (--json has all):\n", kWorst, order.size());
    order.resize(kWorst);
  }
  size_t width = 5;
  for (const size_t i : order) width = std::max(width, names[i].size());
  text += fmt::format("  {:<{}}  {:>7}  {:>8}\n", "class", width, "images", "accuracy");
  for (const size_t i : order)
    text += fmt::format("  {:<{}}  {:>7}  {:>7.2f}%  {}\n", names[i], width, result.classes[i].images, 100 * accuracy(result.classes[i]),
                        support::bar(accuracy(result.classes[i]), 30));
  return text;
}

nlohmann::json to_json(const Evaluation& result, const std::vector<std::string>& names) {
  nlohmann::json classes = nlohmann::json::array();
  for (size_t i = 0; i < names.size(); ++i)
    classes.push_back({{"class", names[i]}, {"images", result.classes[i].images}, {"right", result.classes[i].right}});
  return {{"images", result.images}, {"accuracy", result.accuracy()}, {"top5", result.top5_accuracy()},
          {"loss", result.loss},     {"skipped", result.skipped},     {"classes", classes}};
}

bool changes_the_model(const std::string& change) { return train::key_of(change).starts_with("model."); }

// What the request changes of a model. A fixed length is that of the training, with the class token if there is one: what `keys` counts.
std::vector<std::string> changes_of(const tasks::EvalRequest& request, const models::VitConfig& trained) {
  std::vector<std::string> changes;
  std::copy_if(request.changes.begin(), request.changes.end(), std::back_inserter(changes), changes_the_model);
  if (request.length.empty()) return changes;
  if (const std::vector<std::string> rules = length_rule_names(); std::find(rules.begin(), rules.end(), request.length) == rules.end())
    throw tasks::RequestError(fmt::format("--length '{}' is unknown; known are {}", request.length, fmt::join(rules, ", ")));
  changes.push_back("model.attention.length=" + request.length);
  const int64_t keys = trained.all_tokens();
  changes.push_back(request.length == "fixed" ? fmt::format("model.attention.length_n={}", keys) : "model.attention.length_n=none");
  return changes;
}

const std::string& checked_pp(const std::string& steps) {
  try {
    const data::Pipeline pipeline(steps);
  } catch (const std::runtime_error& error) {
    throw tasks::RequestError(fmt::format("--pp: {}", error.what()));
  }
  return steps;
}

}  // namespace

DataConfig other_data(const std::string& given, const DataConfig& of_run) {
  DataConfig config = of_run;
  const size_t colon = given.find(':');
  config.format = given.substr(0, colon);
  config.path = colon == std::string::npos ? "" : given.substr(colon + 1);
  config.label_map.clear();
  try {
    data::find_format(config.format);
  } catch (const std::runtime_error& error) {
    throw tasks::RequestError(fmt::format("--data '{}' is neither FORMAT nor FORMAT:FOLDER: {}", given, error.what()));
  }
  return config;
}

tasks::EvalReport evaluate_run(const tasks::EvalRequest& request) {
  if (request.bleu) throw tasks::RequestError("--bleu is for translation runs; a run of images has no translations");
  if (request.splits.size() > 1)
    throw tasks::RequestError(fmt::format("--split names {} parts of the images: give one of them", request.splits.size()));
  std::vector<std::string> others;
  std::remove_copy_if(request.changes.begin(), request.changes.end(), std::back_inserter(others), changes_the_model);
  TrainedModel trained = load(request.run, request.which, others);
  change_model(trained, changes_of(request, trained.config.model));
  if (!request.pp.empty()) trained.config.data.eval_pp = checked_pp(request.pp);
  const Config& config = trained.config;
  const DataConfig data = request.data.empty() ? config.data : other_data(request.data, config.data);
  std::string split;
  if (!request.splits.empty())
    split = request.splits.front();
  else
    split = request.data.empty() ? data.eval : test_split(source_of(data, "test"));
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(data, split));
  const LabelledImages labelled = match_labels(with_channels(images, config.model.channels), trained.classes, request.classes);

  EvaluationOptions options;
  options.processes = train::Processes(request.group);
  if (request.group != nullptr) {
    models::require_splittable(config.model, config.train.sequence_parallel);
    options.processes.form_teams(config.train.sequence_parallel);
  }
  options.threads = static_cast<int>(std::max<int64_t>(1, config.data.threads));
  options.on_error = config.data.on_error;
  options.loss = config.optim.loss;
  options.among = labelled.among;
  const data::Pipeline pipeline = input_pipeline(config);
  Evaluation result;
  {
    support::ProgressOutput output = support::ProgressOutput::standard_error();
    if (!options.processes.first()) output.write = [](std::string_view) {};
    support::Progress progress("eval", labelled.images->size(), 0, std::move(output));
    options.progress = [&](int64_t done, int64_t) { progress.update(done, {}); };
    result = evaluate(*trained.model, labelled.images, pipeline, options);
  }

  const std::vector<std::string>& names = labelled.images->classes();
  tasks::EvalReport report{trained.weights, {}, {}};
  report.json = to_json(result, names);
  report.json.update({{"format", data.format},
                      {"split", split},
                      {"left_out", labelled.left_out},
                      {"preprocessing", pipeline.text()},
                      {"image_size", config.model.image_size},
                      {"tokens", config.model.tokens()}});
  report.text = fmt::format("{} images of {}, split {}\n", result.images, data.format, split);
  if (!request.changes.empty() || !request.length.empty() || !request.pp.empty())
    report.text += fmt::format("{0} x {0} pixels, {1} tokens, {2}\n", config.model.image_size, config.model.tokens(), pipeline.text());
  if (!labelled.among.empty())
    report.text += fmt::format("predicting among {} of {} classes; {} images of other classes are left out\n", labelled.among.size(),
                               trained.classes.size(), labelled.left_out);
  report.text += fmt::format("  top-1  {:.2f}%\n  top-5  {:.2f}%\n  loss   {:.4f}\n", 100 * result.accuracy(), 100 * result.top5_accuracy(),
                             result.loss);
  for (const auto& [name, value] : learned_attention(*trained.model)) {
    report.text += fmt::format("  learned {} {:.4f}\n", name, value);
    report.json["learned"][name] = value;
  }
  for (const std::string& skipped : result.skipped) report.text += fmt::format("  skipped {}\n", skipped);
  report.text += class_table(result, names);
  return report;
}

}  // namespace hinge::vision
