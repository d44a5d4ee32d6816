#include "tasks/vision/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "eval/pixels.h"
#include "hinge/ops/dense.h"

namespace hinge::vision {

Evaluation evaluate(const models::Vit& model, const std::shared_ptr<const data::ImageSet>& images, const data::Pipeline& pipeline,
                    const EvaluationOptions& options) {
  const at::NoGradGuard guard;
  data::LoaderOptions loading;
  loading.batch_size = options.batch;
  loading.threads = options.threads;
  loading.shuffle = loading.endless = false;
  loading.on_error = options.on_error;
  data::Loader loader(images, pipeline, loading);
  Evaluation result;
  result.classes.resize(images->classes().size());
  const at::Tensor among = options.among.empty() ? at::Tensor() : at::tensor(options.among, at::kLong);
  data::Batch batch;
  const auto stopped = [&] { return options.stop && *options.stop; };
  while (!(result.stopped = stopped()) && loader.next(batch)) {
    if (batch.size == 0) continue;
    at::Tensor logits = model.forward(eval::pixels_of(batch), /*training=*/false);
    if (among.defined()) logits = logits.index_select(1, among);
    const at::Tensor labels = at::from_blob(batch.labels.data(), {batch.size}, at::kLong);
    result.loss += cross_entropy(options.loss, logits, labels).item<double>() * static_cast<double>(batch.size);
    const int64_t k = std::min<int64_t>(5, logits.size(1));
    const at::Tensor best = std::get<1>(logits.topk(k, 1));
    const int64_t* row = best.data_ptr<int64_t>();
    for (int64_t i = 0; i < batch.size; ++i, row += k) {
      const int64_t label = batch.labels[static_cast<size_t>(i)];
      ClassCount& count = result.classes[static_cast<size_t>(label)];
      const bool right = row[0] == label;
      ++result.images, ++count.images;
      result.top1 += right, count.right += right;
      result.top5 += std::find(row, row + k, label) != row + k;
    }
    if (options.progress) options.progress(result.images, images->size());
  }
  if (result.images) result.loss /= static_cast<double>(result.images);
  result.skipped = loader.skipped();
  return result;
}

}  // namespace hinge::vision
