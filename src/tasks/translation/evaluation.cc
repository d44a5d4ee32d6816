#include "tasks/translation/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "ops/parallel.h"
#include "train/trainer.h"

namespace hinge::translation {
namespace {

at::Tensor tensor(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Gives the parts of each process, which follow one another, to all. False: one has stopped.
bool share(const train::Processes& processes, bool whole, int64_t first, int64_t last, std::vector<Evaluation>& parts) {
  std::string own(whole ? "" : "stopped");
  if (whole) own.assign(reinterpret_cast<const char*>(parts.data() + first), static_cast<size_t>(last - first) * sizeof(Evaluation));
  bool all_whole = true;
  std::string all;
  for (const std::string& bytes : processes.gather(own)) {
    all_whole = all_whole && bytes != "stopped";
    all += bytes;
  }
  if (all_whole) std::memcpy(parts.data(), all.data(), all.size());
  return all_whole;
}

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
                                   const std::function<bool(int64_t done, int64_t all)>& progress, const train::Processes& processes) {
  const int64_t count = batches.steps(0);
  const auto [first, last] = processes.own_part(count);
  const int64_t own = last - first;
  std::vector<Evaluation> parts(static_cast<size_t>(count));  // added up in their order
  std::mutex mutex;                                           // of the batches and the progress
  int64_t done = 0;
  bool goes_on = true;
  const auto take_batch = [&, first = first](int64_t place) {
    const int64_t i = first + place;
    std::optional<ModelBatch> batch;
    {
      const std::scoped_lock lock(mutex);
      if (!goes_on) return;
      batch.emplace(batches.at(i));
    }
    const at::NoGradGuard guard;  // of this thread
    const models::Seq2SeqLoss loss = model.loss(batch->source, batch->target, batch->labels, {.ranks = processes.sequence()});
    const std::vector<double> sums = processes.sums_of_team({loss.nll, static_cast<double>(loss.tokens), static_cast<double>(loss.right)});
    parts[static_cast<size_t>(i)] = {sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2])};
    const std::scoped_lock lock(mutex);
    goes_on = !processes.any_of_team(!progress(++done, own) && done < own) && goes_on;
  };
  if (processes.sequence() != nullptr)
    for (int64_t i = 0; i < own; ++i) take_batch(i);  // their exchanges follow one another
  else
    run_side_by_side(own, take_batch);
  if (processes.count() > 1 && !share(processes, goes_on, first, last, parts)) return {};
  if (!goes_on) return {};
  Evaluation result;
  for (const Evaluation& part : parts) result.nll += part.nll, result.tokens += part.tokens, result.right += part.right;
  return result;
}

}  // namespace hinge::translation
