// hinge predict: what a trained model takes pictures for.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "support/progress.h"
#include "tasks/vision/predictions.h"

namespace hinge::cli {
namespace {

struct PredictOptions {
  RunOptions run;
  std::vector<std::string> images;
  std::string top = "5";
  bool json = false;
};

using vision::Prediction;

int run_predict(const PredictOptions& options) {
  const int64_t top = parse_whole("--top", options.top, 1, 1000000);
  const vision::TrainedModel trained = open_vision(options.run, "hinge predict");
  nlohmann::json json = nlohmann::json::array();
  int code = 0;
  for (const std::string& path : options.images) {
    std::vector<Prediction> predictions;
    try {
      predictions = vision::predict(trained, vision::model_input(trained.config, path), top);
    } catch (const std::runtime_error& error) {  // of this picture: the others are worth having
      fmt::print(stderr, "hinge: {}\n", error.what());
      json.push_back({{"image", path}, {"error", error.what()}});
      code = 1;
      continue;
    }
    const auto name = [&](const Prediction& p) -> const std::string& { return trained.classes[static_cast<size_t>(p.label)]; };
    if (options.json) {
      nlohmann::json list = nlohmann::json::array();
      for (const Prediction& p : predictions)
        list.push_back({{"class", name(p)}, {"label", p.label}, {"probability", p.probability}, {"logit", p.logit}});
      json.push_back({{"image", path}, {"predictions", list}});
      continue;
    }
    size_t width = 0;
    for (const Prediction& p : predictions) width = std::max(width, name(p).size());
    fmt::print("{}\n", path);
    for (const Prediction& p : predictions)
      fmt::print("  {:<{}}  {} {:>6.2f}%\n", name(p), width, support::bar(p.probability, 30), 100 * p.probability);
  }
  if (options.json) fmt::print("{}", json_text(json));
  return code;
}

}  // namespace

void add_predict(Command parent) {
  auto options = std::make_shared<PredictOptions>();
  Command command = parent.subcommand("predict", "Classify images with a trained model");
  add_run(command, options->run);
  command.option("images", options->images, "IMAGE", "JPEG or PNG files of any size").required();
  command.option("--top", options->top, "N", "How many classes to show (default: 5)");
  command.flag("--json", options->json, "Print JSON instead of text, with the logits");
  command.run([options] { return run_predict(*options); });
}

}  // namespace hinge::cli
