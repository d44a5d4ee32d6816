// hinge probe: how much of what a model has learned carries over, by linear probes with few examples.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "data/formats.h"
#include "eval/fewshot.h"
#include "support/progress.h"
#include "tasks/vision/evaluate_run.h"
#include "tasks/vision/model_input.h"

namespace hinge::cli {
namespace {

struct ProbeOptions {
  RunOptions run;
  std::vector<std::string> data, shots = {"1", "5", "10", "25"};
  std::string seeds = "3", pp, splits;
  bool json = false;
};

using Splits = std::pair<std::string, std::string>;  // to learn from, to test on

struct Probed {
  std::string data, support, test;
  int64_t classes = 0, tested = 0;
  std::vector<eval::FewshotResult> results;  // one a number of shots
};

// Where none are named: a folder without splits is halved.
Splits usual_splits(const std::string& data, const data::DataSource& source) {
  const std::vector<std::string> there = data::splits(source);
  if (there == std::vector<std::string>{"all"}) return {"all[:50%]", "all[50%:]"};
  const auto has = [&](const char* name) { return std::find(there.begin(), there.end(), name) != there.end(); };
  for (const char* test : {"test", "val", "validation"})
    if (has("train") && has(test)) return {"train", test};
  throw std::runtime_error(fmt::format(
      "{}: a probe needs the splits train and test (or val), or a folder of classes without splits; --splits names others", data));
}

Splits parse_splits(const std::string& text) {
  const std::vector<std::string> names = parse_list("--splits", text);
  if (names.size() != 2) throw UsageError(fmt::format("--splits '{}': write two, TRAIN,TEST", text));
  try {
    for (const std::string& name : names) data::parse_split(name);
  } catch (const std::runtime_error& error) {
    throw UsageError(fmt::format("--splits '{}': {}", text, error.what()));
  }
  return {names[0], names[1]};
}

data::Pipeline parse_preprocessing(const std::string& text) {
  try {
    return data::Pipeline(text);
  } catch (const std::runtime_error& error) {
    throw UsageError(fmt::format("--pp: {}", error.what()));
  }
}

Probed probe(const vision::TrainedModel& trained, const std::string& data, const std::optional<Splits>& splits,
             const data::Pipeline& pipeline, eval::FewshotOptions how) {
  const vision::DataConfig config = vision::other_data(data, trained.config.data);
  Probed probed{data, {}, {}, 0, 0, {}};
  std::tie(probed.support, probed.test) = splits ? *splits : usual_splits(data, vision::source_of(config, "train"));
  const auto open = [&](const std::string& split) {
    return vision::with_channels(data::open_images(vision::source_of(config, split)), trained.config.model.channels);
  };
  const std::shared_ptr<const data::ImageSet> support = open(probed.support), test = open(probed.test);
  probed.classes = static_cast<int64_t>(support->classes().size());
  probed.tested = test->size();
  std::unique_ptr<support::Progress> progress;
  how.progress = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<support::Progress>(data, total);
    progress->update(done, {});
  };
  probed.results = eval::fewshot(*trained.model, support, test, pipeline, how);
  return probed;
}

// The mean over the data sets of their means over the seeds.
double mean_of(const std::vector<Probed>& all, size_t shots) {
  double sum = 0;
  for (const Probed& probed : all) sum += probed.results[shots].mean();
  return sum / static_cast<double>(all.size());
}

// "mnist" for mnist:FOLDER; a format of many sets leaves the name to the folder.
std::string name_of(const std::string& data) {
  const size_t colon = data.find(':');
  const std::string format = data.substr(0, colon);
  if (colon == std::string::npos || !data::find_format(format).many_sets) return format;
  const std::filesystem::path folder = std::filesystem::path(data.substr(colon + 1) + "/.").lexically_normal().parent_path();
  return folder.filename().string();
}

nlohmann::json to_json(const std::vector<Probed>& all, const std::string& preprocessing) {
  nlohmann::json sets = nlohmann::json::array(), means = nlohmann::json::array();
  for (const Probed& probed : all) {
    nlohmann::json results = nlohmann::json::array();
    for (const eval::FewshotResult& result : probed.results)
      results.push_back(
          {{"shots", result.shots}, {"mean", result.mean()}, {"deviation", result.deviation()}, {"accuracies", result.accuracies}});
    sets.push_back({{"name", name_of(probed.data)},
                    {"data", probed.data},
                    {"support", probed.support},
                    {"test", probed.test},
                    {"classes", probed.classes},
                    {"images", probed.tested},
                    {"results", results}});
  }
  for (size_t i = 0; i < all.front().results.size(); ++i)
    means.push_back({{"shots", all.front().results[i].shots}, {"mean", mean_of(all, i)}});
  return {{"preprocessing", preprocessing}, {"sets", sets}, {"means", means}};
}

void print(const std::vector<Probed>& all, const std::string& preprocessing) {
  fmt::print("preprocessing: {}\n", preprocessing);
  size_t width = 4;
  for (const Probed& probed : all) width = std::max(width, probed.data.size());
  fmt::print("{:<{}}", "data", width);
  for (const eval::FewshotResult& result : all.front().results)
    fmt::print("  {:>14}", fmt::format("{} shot{}", result.shots, result.shots > 1 ? "s" : ""));
  fmt::print("\n");
  for (const Probed& probed : all) {
    fmt::print("{:<{}}", probed.data, width);
    for (const eval::FewshotResult& result : probed.results)
      fmt::print("  {:>14}", fmt::format("{:.2f}% ± {:.2f}", 100 * result.mean(), 100 * result.deviation()));
    fmt::print("\n");
  }
  if (all.size() > 1) {
    fmt::print("{:<{}}", "mean", width);
    for (size_t i = 0; i < all.front().results.size(); ++i) fmt::print("  {:>14}", fmt::format("{:.2f}%       ", 100 * mean_of(all, i)));
    fmt::print("\n");
  }
}

int run_probe(const ProbeOptions& options) {
  eval::FewshotOptions how;
  how.shots.clear();
  for (const std::string& shots : options.shots) how.shots.push_back(parse_whole("--shots", shots, 1, 1000000));
  how.seeds = parse_whole("--seeds", options.seeds, 1, 1000);
  std::optional<Splits> splits;
  if (!options.splits.empty()) splits = parse_splits(options.splits);
  std::optional<data::Pipeline> pipeline;
  if (!options.pp.empty()) pipeline = parse_preprocessing(options.pp);
  const vision::TrainedModel trained = open_vision(options.run, "hinge probe");
  if (!pipeline) pipeline = vision::probe_pipeline(trained.config);
  how.threads = static_cast<int>(std::max<int64_t>(1, trained.config.data.threads));
  std::vector<Probed> all;
  for (const std::string& data : options.data) all.push_back(probe(trained, data, splits, *pipeline, how));
  if (options.json)
    fmt::print("{}", json_text(to_json(all, pipeline->text())));
  else
    print(all, pipeline->text());
  return 0;
}

}  // namespace

void add_probe(Command parent) {
  auto options = std::make_shared<ProbeOptions>();
  Command command = parent.subcommand("probe", "Few-shot linear probes on a trained model's features");
  add_run(command, options->run);
  command.option("--data", options->data, "FORMAT[:FOLDER]", "Sets of images, e.g. cifar100:FOLDER fashion-mnist folder:FOLDER").required();
  command.option("--shots", options->shots, "LIST", "Examples of each class (default: 1,5,10,25)").split_at_commas();
  command.option("--splits", options->splits, "TRAIN,TEST",
                 "Splits to learn from and to test on, of every set (default: train and test or val)");
  command.option("--pp", options->pp, "STEPS",
                 "Preprocessing (default: the picture resized to a square and its centre cropped, see docs/vision.md)");
  command.option("--seeds", options->seeds, "N", "Random draws of the examples to average over (default: 3)");
  command.flag("--json", options->json, "Print JSON instead of text");
  command.footer(
      "Each number is the accuracy on the test split, the mean of the seeds ± their standard deviation.\n"
      "The probe is ridge regression with l2 = 1024 on whitened features. A folder without splits is halved, by a fixed random order.");
  command.run([options] { return run_probe(*options); });
}

}  // namespace hinge::cli
