// hinge predict: what a trained model takes pictures for.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "data/codec.h"
#include "eval/model_input.h"
#include "support/progress.h"

namespace hinge::cli {
namespace {

struct PredictOptions {
  ModelOptions model;
  std::vector<std::string> images;
  std::string top = "5";
  bool json = false;
};

struct Prediction {
  int64_t label = 0;
  double probability = 0, logit = 0;
};

std::vector<Prediction> predict(const train::LoadedVit& loaded, const std::string& path, int64_t top) {
  const at::NoGradGuard guard;
  const at::Tensor logits = loaded.model->forward(eval::model_input(loaded.config, data::read_image(path)).pixels, /*training=*/false)[0];
  const at::Tensor probabilities = loaded.config.optim.loss == "sigmoid" ? logits.sigmoid() : logits.softmax(0);
  const auto [best, labels] = logits.topk(std::min<int64_t>(top, logits.size(0)));
  std::vector<Prediction> predictions;
  for (int64_t i = 0; i < labels.size(0); ++i) {
    const int64_t label = labels[i].item<int64_t>();
    predictions.push_back({label, probabilities[label].item<double>(), best[i].item<double>()});
  }
  return predictions;
}

int run_predict(const PredictOptions& options) {
  const int64_t top = parse_whole("--top", options.top, 1, 1000000);
  const train::LoadedVit loaded = open_model(options.model);
  nlohmann::json json = nlohmann::json::array();
  int code = 0;
  for (const std::string& path : options.images) {
    std::vector<Prediction> predictions;
    try {
      predictions = predict(loaded, path, top);
    } catch (const std::runtime_error& error) {  // of this picture: the others are worth having
      fmt::print(stderr, "hinge: {}\n", error.what());
      json.push_back({{"image", path}, {"error", error.what()}});
      code = 1;
      continue;
    }
    const auto name = [&](const Prediction& p) -> const std::string& { return loaded.classes[static_cast<size_t>(p.label)]; };
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
  Command command = parent.subcommand("predict", "Say what pictures show, by a trained model");
  add_model(command, options->model);
  command.option("images", options->images, "IMAGE", "JPEG or PNG files of any size").required();
  command.option("--top", options->top, "N", "How many classes to show (default: 5)");
  command.flag("--json", options->json, "Print JSON instead of text, with the logits");
  command.run([options] { return run_predict(*options); });
}

}  // namespace hinge::cli
