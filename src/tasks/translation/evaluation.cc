#include "tasks/translation/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "ops/parallel.h"
#include "train/trainer.h"

namespace hinge::translation {
namespace {

at::Tensor tensor(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

}  // namespace

ModelBatch::ModelBatch(const text::TextBatch& batch)
    : source{tensor(batch.source), tensor(batch.source_offsets)},
      target{tensor(batch.target_in), tensor(batch.target_offsets)},
      labels(tensor(batch.target_out)) {}

text::BatchOptions batch_options(const Config& config, bool training) {
  text::BatchOptions options;
  options.tokens = config.optim.batch;
  options.seed = train::stream_seed(static_cast<uint64_t>(config.train.seed), train::Stream::data);
  options.shuffle = training;
  return options;
}

int64_t steps_of(text::Batches& batches, double epochs, int64_t most) {
  const auto whole = static_cast<int64_t>(std::min(epochs, 1e15));
  for (int64_t epoch = 1; epoch <= whole; ++epoch)
    if (batches.first_step(epoch) > most) return most;
  const double part = epochs - static_cast<double>(whole);
  double count = static_cast<double>(batches.first_step(whole));
  if (part > 0) count += part * static_cast<double>(batches.steps(whole));
  return std::min(most, static_cast<int64_t>(std::llround(count)));
}

std::optional<Evaluation> evaluate(const models::Seq2Seq& model, text::Batches& batches,
                                   const std::function<bool(int64_t done, int64_t all)>& progress) {
  const int64_t count = batches.steps(0);
  std::vector<Evaluation> parts(static_cast<size_t>(count));  // added up in their order
  std::mutex mutex;                                           // of the batches and the progress
  int64_t done = 0;
  bool goes_on = true;
  const auto take_batch = [&](int64_t i) {
    std::optional<ModelBatch> batch;
    {
      const std::scoped_lock lock(mutex);
      if (!goes_on) return;
      batch.emplace(batches.at(i));
    }
    const at::NoGradGuard guard;  // of this thread
    const models::Seq2SeqLoss loss = model.loss(batch->source, batch->target, batch->labels);
    parts[static_cast<size_t>(i)] = {loss.nll, loss.tokens, loss.right};
    const std::scoped_lock lock(mutex);
    goes_on = (progress(++done, count) || done == count) && goes_on;
  };
  run_side_by_side(count, take_batch);
  if (!goes_on) return {};
  Evaluation result;
  for (const Evaluation& part : parts) result.nll += part.nll, result.tokens += part.tokens, result.right += part.right;
  return result;
}

}  // namespace hinge::translation
