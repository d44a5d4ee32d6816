#include "tasks/translation/evaluation.h"

#include <ATen/ATen.h>

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
  options.tokens = config.optim.batch / config.optim.accumulate;
  options.seed = train::stream_seed(static_cast<uint64_t>(config.train.seed), train::Stream::data);
  options.shuffle = training;
  return options;
}

std::optional<Evaluation> evaluate(const models::Seq2Seq& model, text::Batches& batches,
                                   const std::function<bool(int64_t done, int64_t all)>& progress) {
  const at::NoGradGuard guard;
  Evaluation result;
  const int64_t count = batches.steps(0);
  for (int64_t i = 0; i < count; ++i) {
    const ModelBatch batch(batches.at(i));
    const models::Seq2SeqLoss loss = model.loss(batch.source, batch.target, batch.labels);
    result.nll += loss.nll, result.tokens += loss.tokens, result.right += loss.right;
    if (!progress(i + 1, count) && i + 1 < count) return {};
  }
  return result;
}

}  // namespace hinge::translation
