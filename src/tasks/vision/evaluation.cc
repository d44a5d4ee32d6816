#include "tasks/vision/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "eval/for_each_batch.h"
#include "eval/pixels.h"
#include "hinge/ops/dense.h"

namespace hinge::vision {
namespace {

// Adds up what the processes have counted. `losses`: of all batches, of which each process has computed those that are not zero.
void share(const train::Processes& processes, Evaluation& result, std::vector<double>& losses) {
  nlohmann::json own = {{"losses", losses},
                        {"images", result.images},
                        {"top1", result.top1},
                        {"top5", result.top5},
                        {"stopped", result.stopped},
                        {"skipped", result.skipped},
                        {"classes", nlohmann::json::array()}};
  for (const ClassCount& count : result.classes) own["classes"].push_back({count.images, count.right});
  const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(own);
  Evaluation all;
  all.classes.resize(result.classes.size());
  std::fill(losses.begin(), losses.end(), 0);
  for (const std::string& text : processes.gather({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    const nlohmann::json part = nlohmann::json::from_msgpack(text);
    all.images += part.at("images").get<int64_t>(), all.top1 += part.at("top1").get<int64_t>(), all.top5 += part.at("top5").get<int64_t>();
    all.stopped = all.stopped || part.at("stopped").get<bool>();
    for (const nlohmann::json& file : part.at("skipped")) all.skipped.push_back(file.get<std::string>());
    for (size_t i = 0; i < losses.size(); ++i) losses[i] += part.at("losses")[i].get<double>();
    for (size_t i = 0; i < all.classes.size(); ++i)
      all.classes[i].images += part.at("classes")[i][0].get<int64_t>(), all.classes[i].right += part.at("classes")[i][1].get<int64_t>();
  }
  result = std::move(all);
}

}  // namespace

Evaluation evaluate(const models::Vit& model, const std::shared_ptr<const data::ImageSet>& images, const data::Pipeline& pipeline,
                    const EvaluationOptions& options) {
  data::LoaderOptions loading;
  loading.batch_size = options.batch;
  loading.threads = options.threads;
  loading.shuffle = loading.endless = false;
  loading.on_error = options.on_error;
  const auto [first, end] = options.processes.own_part((images->size() + options.batch - 1) / options.batch);
  loading.first_step = first, loading.end_step = end;
  data::Loader loader(images, pipeline, loading);
  Evaluation result;
  result.classes.resize(images->classes().size());
  const at::Tensor among = options.among.empty() ? at::Tensor() : at::tensor(options.among, at::kLong);
  std::vector<double> losses(static_cast<size_t>(loader.steps_per_epoch()));  // of batches, summed up in their order
  std::mutex mutex;
  const auto evaluate_batch = [&](data::Batch& batch) {
    at::Tensor logits = model.forward(eval::pixels_of(batch), {}, nullptr, options.processes.sequence());
    if (among.defined()) logits = logits.index_select(1, among);
    const at::Tensor labels = at::from_blob(batch.labels.data(), {batch.size}, at::kLong);
    const double loss = cross_entropy(options.loss, logits, labels).item<double>() * static_cast<double>(batch.size);
    const int64_t k = std::min<int64_t>(5, logits.size(1));
    const at::Tensor best = std::get<1>(logits.topk(k, 1));
    const std::scoped_lock lock(mutex);
    losses[static_cast<size_t>(batch.step)] = loss;
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
  };
  std::atomic<bool> stopped = false;
  const auto goes_on = [&] {
    if (options.processes.any_of_team(options.stop && *options.stop)) stopped = true;
    return !stopped;
  };
  eval::for_each_batch(loader, goes_on, evaluate_batch, options.processes.sequence() != nullptr);
  result.stopped = stopped;
  result.skipped = loader.skipped();
  if (options.processes.count() > 1) share(options.processes, result, losses);
  result.loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  if (result.images) result.loss /= static_cast<double>(result.images);
  return result;
}

}  // namespace hinge::vision
