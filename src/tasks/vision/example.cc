#include "tasks/vision/example.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "data/codec.h"
#include "tasks/vision/attention_maps.h"
#include "tasks/vision/model_input.h"
#include "tasks/vision/predictions.h"
#include "tasks/vision/trained_model.h"
#include "train/trainer.h"

namespace hinge::vision {
namespace {

constexpr int64_t kClasses = 5;

}  // namespace

tasks::Example example(const std::string& run, const std::string& bytes) {
  const at::NoGradGuard guard;
  train::use_threads(1);
  data::Image picture;
  data::decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "the picture", picture);
  const TrainedModel trained = load(run, train::Which::best);
  const ModelInput input = model_input(trained.config, std::move(picture));
  const AttentionMaps maps = attention_maps(*trained.model, input.pixels);
  const int64_t patch = *trained.model->config().patch;

  tasks::Example made;
  made.step = trained.weights.checkpoint.step;
  for (const Prediction& prediction : predict(trained, input, kClasses))
    made.classes.emplace_back(trained.classes[static_cast<size_t>(prediction.label)], prediction.probability);
  const AttentionNumbers numbers = mean_of_layers(maps);
  made.numbers = {
      {"sum of a query's weights", numbers.mass}, {"entropy in nats", numbers.entropy}, {"share of exact zeros", numbers.zero_share}};
  const auto add = [&](const std::string& title, const data::Image& image) {
    made.pictures.push_back({title, "image/png", png_of(image)});
  };
  add("what the model sees", enlarged(input.image));
  for (size_t i = 0; i < maps.layers.size(); ++i) add(fmt::format("layer {}", i), overlay(input.image, maps.layers[i].map, patch));
  add("rollout", overlay(input.image, maps.rollout, patch));
  return made;
}

}  // namespace hinge::vision
