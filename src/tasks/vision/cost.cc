#include "tasks/vision/cost.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "data/image_set.h"
#include "data/source.h"
#include "hinge/ops/dense.h"
#include "models/vit.h"
#include "tasks/sweep_costs.h"
#include "tasks/vision/config.h"
#include "train/flops.h"
#include "train/sharded_gradient.h"
#include "train/step_seconds.h"

namespace hinge::vision {
namespace {

// What the data say: those on this machine, or those that are assumed.
struct ImageCounts {
  int64_t images = 0, classes = 0;
};

ImageCounts count_images(const DataConfig& config, const tasks::Assumptions& assumed) {
  if (const auto images = assumed.find("images"); images != assumed.end()) {
    const auto [first, last] = data::parse_split(config.train).range(static_cast<int64_t>(images->second));
    const auto classes = assumed.find("classes");
    return {last - first, classes == assumed.end() ? 0 : static_cast<int64_t>(classes->second)};
  }
  const std::shared_ptr<const data::ImageSet> images = data::open_images(source_of(config, config.train));
  return {images->size(), static_cast<int64_t>(images->classes().size())};
}

train::StepSeconds measure(const models::Vit& model, const Config& config, int64_t images) {
  const models::VitConfig& size = model.config();
  const at::Tensor pixels = at::randn({images, size.image_size, size.image_size, size.channels});
  const at::Tensor labels = at::arange(images) % size.classes;
  return train::step_seconds(model.parameters(), [&] {
    const at::Tensor loss = hinge::cross_entropy(config.optim.loss, model.forward(pixels, /*noise=*/1), labels);
    return train::gradients_of(model.parameters(), {loss}, {1});
  });
}

}  // namespace

std::vector<tasks::TrainingCost> costs(const tasks::CostRequest& request) {
  std::vector<tasks::TrainingCost> costs;
  for (const tasks::ConfigSource& source : request.configs) {
    auto config = tasks::read_config<Config>(source);
    const ImageCounts counts = count_images(config.data, request.assumed);
    if (config.model.classes == 0) config.model.classes = counts.classes;
    config.model = models::resolved(config.model);
    config.model.gradient_checkpointing = config.train.gradient_checkpointing;
    train::check(config.optim, config.train);
    train::resolve_steps(config.optim, [&](double epochs, int64_t most) { return steps_of(config.optim, counts.images, epochs, most); });

    const models::Vit model(config.model, 0);
    tasks::TrainingCost cost;
    cost.parameters = model.parameters().count();
    cost.steps = *config.optim.steps;
    const double image = train::training_flops(model.flops()), batch = static_cast<double>(config.optim.batch);
    cost.flops = image * batch * static_cast<double>(cost.steps);
    cost.seconds = tasks::known_seconds(cost, costs);
    if (cost.seconds == 0) {
      const int64_t shard = config.optim.batch / std::max<int64_t>(1, config.train.shards);
      const int64_t images = std::clamp<int64_t>(static_cast<int64_t>(train::kMeasuredFlops / image), 1, shard);
      const train::StepSeconds seconds = measure(model, config, images);
      cost.seconds = static_cast<double>(cost.steps) * (seconds.gradient * batch / static_cast<double>(images) + seconds.adam);
    }
    costs.push_back(cost);
    request.progress(std::ssize(costs));
  }
  return costs;
}

}  // namespace hinge::vision
