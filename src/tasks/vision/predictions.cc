#include "tasks/vision/predictions.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace hinge::vision {

std::vector<Prediction> predict(const TrainedModel& trained, const ModelInput& input, int64_t top) {
  const at::NoGradGuard guard;
  const at::Tensor logits = trained.model->forward(input.pixels)[0];
  const bool each_class = trained.config.optim.loss == kernels::CrossEntropy::sigmoid;
  const at::Tensor probabilities = each_class ? logits.sigmoid() : logits.softmax(0);
  const auto [best, labels] = logits.topk(std::min<int64_t>(top, logits.size(0)));
  std::vector<Prediction> predictions;
  for (int64_t i = 0; i < labels.size(0); ++i) {
    const int64_t label = labels[i].item<int64_t>();
    predictions.push_back({label, probabilities[label].item<double>(), best[i].item<double>()});
  }
  return predictions;
}

}  // namespace hinge::vision
