// The plan of an epoch, and the copying of one batch.
#include "text/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "hinge/kernels/dropout.h"

namespace hinge::text {
namespace {

// What the numbers are for; each has its own stream.
enum class Purpose : uint32_t { items, batches };

// Philox keyed by the seed, counted by (purpose, epoch, draw).
class Random {
 public:
  Random(uint64_t seed, Purpose purpose, int64_t epoch)
      : seed_(seed), counter_{0, 0x7e870000u + static_cast<uint32_t>(purpose), static_cast<uint32_t>(epoch), 0} {}

  // In [0, n): the high word of 64 random bits times n, n up to 2^32.
  size_t below(size_t n) {
    const std::array<uint32_t, 4> block = kernels::philox4x32(counter_, seed_);
    ++counter_[0];
    return (block[0] * uint64_t{n} + (block[1] * uint64_t{n} >> 32)) >> 32;
  }

  template <class T> void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_;
  std::array<uint32_t, 4> counter_;
};

// Lengths from 2^(k/8) to 2^((k+1)/8) are one class.
int length_class(int64_t length) { return static_cast<int>(std::floor(8 * std::log2(static_cast<double>(length)))); }

// Of the longer side.
int64_t length_of(const Corpus& corpus, int64_t item) { return std::max(corpus.source_length(item), corpus.target_length(item)); }

void require_room(const Corpus& corpus, int64_t tokens) {
  int64_t longest = 0, too_long = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    too_long += length_of(corpus, i) > tokens ? 1 : 0;
    if (length_of(corpus, i) > length_of(corpus, longest)) longest = i;
  }
  if (too_long > 0)
    throw std::runtime_error(
        fmt::format("{}: has {} tokens, but a batch holds {} (optim.batch), and {} of {} items do not fit into one: "
                    "raise optim.batch, or leave them out by a lower data.longest_tokens (of documents: cut them shorter by "
                    "data.document_tokens)",
                    corpus.place_name(longest), length_of(corpus, longest), tokens, too_long, corpus.size()));
}

void append(std::vector<int64_t>& to, const std::vector<int64_t>& values, int64_t first, int64_t last) {
  to.insert(to.end(), values.begin() + first, values.begin() + last);
}

// An item belongs where its middle lies: tokens `begin` up to `end` of all.
size_t part_of(int64_t begin, int64_t end, int64_t tokens, int64_t parts) {
  return static_cast<size_t>((begin + end) * parts / (2 * tokens));
}

}  // namespace

int64_t even_parts(const std::vector<std::vector<int64_t>>& lengths, double most) {
  // Adding the gradients of two parts takes as long as computing those of some tokens. Both grow with the number of parameters, so that
  // the model does not matter. Measured on two cores with 37 M parameters and 1,800 tokens per batch: 2% of a step.
  constexpr int64_t kAddingTokens = 25;
  for (int64_t parts = 1;; parts *= 2) {
    int64_t all = 0, longest = 0;
    for (const std::vector<int64_t>& batch : lengths) {
      const int64_t tokens = std::accumulate(batch.begin(), batch.end(), int64_t{0});
      std::vector<int64_t> sums(static_cast<size_t>(2 * parts));
      int64_t begin = 0;
      for (const int64_t length : batch) {
        sums[part_of(begin, begin + length, tokens, 2 * parts)] += length;
        begin += length;
      }
      all += tokens, longest += 2 * parts * (*std::max_element(sums.begin(), sums.end()) + kAddingTokens);
    }
    if (static_cast<double>(longest) > most * static_cast<double>(all) || all == 0) return parts;
  }
}

std::vector<TextBatch> cut(const TextBatch& batch, int64_t parts) {
  std::vector<TextBatch> all(static_cast<size_t>(parts));
  for (TextBatch& part : all) {
    part.step = batch.step, part.epoch = batch.epoch;
    part.source_offsets = part.target_offsets = {0};
  }
  const int64_t tokens = batch.source_offsets.back() + batch.target_offsets.back();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const int64_t source = batch.source_offsets[i], source_end = batch.source_offsets[i + 1];
    const int64_t target = batch.target_offsets[i], target_end = batch.target_offsets[i + 1];
    TextBatch& part = all[part_of(source + target, source_end + target_end, tokens, parts)];
    part.items.push_back(batch.items[i]);
    append(part.source, batch.source, source, source_end);
    append(part.target_in, batch.target_in, target, target_end);
    append(part.target_out, batch.target_out, target, target_end);
    part.source_offsets.push_back(static_cast<int64_t>(part.source.size()));
    part.target_offsets.push_back(static_cast<int64_t>(part.target_in.size()));
  }
  return all;
}

Batches::Batches(std::shared_ptr<const Corpus> corpus, const BatchOptions& options) : corpus_(std::move(corpus)), options_(options) {
  require_room(*corpus_, options_.tokens);
}

void Batches::plan(int64_t epoch) {
  if (epoch == planned_) return;
  const Corpus& corpus = *corpus_;
  const auto count = static_cast<size_t>(corpus.size());
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0);
  std::vector<int> classes(count);
  for (size_t i = 0; i < count; ++i) {
    const auto item = static_cast<int64_t>(i);
    classes[i] = length_class(length_of(corpus, item));
  }
  if (options_.shuffle) Random(options_.seed, Purpose::items, epoch).shuffle(order_);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t a, int32_t b) { return classes[static_cast<size_t>(a)] < classes[static_cast<size_t>(b)]; });

  bounds_.clear();
  int64_t source = 0, target = 0, first = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const int64_t item = order_[static_cast<size_t>(i)];
    source += corpus.source_length(item);
    target += corpus.target_length(item);
    if (source > options_.tokens || target > options_.tokens) {
      bounds_.emplace_back(first, i);
      first = i;
      source = corpus.source_length(item);
      target = corpus.target_length(item);
    }
  }
  bounds_.emplace_back(first, corpus.size());
  if (options_.shuffle) Random(options_.seed, Purpose::batches, epoch).shuffle(bounds_);
  planned_ = epoch;
  if (static_cast<size_t>(epoch) + 1 == first_steps_.size())
    first_steps_.push_back(first_steps_.back() + static_cast<int64_t>(bounds_.size()));
}

int64_t Batches::first_step(int64_t epoch) {
  while (first_steps_.size() <= static_cast<size_t>(epoch)) plan(static_cast<int64_t>(first_steps_.size()) - 1);
  return first_steps_[static_cast<size_t>(epoch)];
}

int64_t Batches::steps(int64_t epoch) { return first_step(epoch + 1) - first_step(epoch); }

int64_t Batches::epoch_of(int64_t step) {
  if (step < 0) throw std::runtime_error(fmt::format("batches: step {} is not allowed; steps begin with 0", step));
  while (first_steps_.back() <= step) plan(static_cast<int64_t>(first_steps_.size()) - 1);
  const auto after = std::upper_bound(first_steps_.begin(), first_steps_.end(), step);
  return after - first_steps_.begin() - 1;
}

std::vector<std::vector<int64_t>> Batches::sample_lengths(int64_t most) {
  plan(0);
  const int64_t count = std::min(most, std::ssize(bounds_));
  std::vector<std::vector<int64_t>> lengths(static_cast<size_t>(count));
  for (int64_t b = 0; b < count; ++b) {
    const auto [first, last] = bounds_[static_cast<size_t>(b * std::ssize(bounds_) / count)];
    for (int64_t i = first; i < last; ++i) {
      const int64_t item = order_[static_cast<size_t>(i)];
      lengths[static_cast<size_t>(b)].push_back(corpus_->source_length(item) + corpus_->target_length(item));
    }
  }
  return lengths;
}

TextBatch Batches::at(int64_t step) {
  TextBatch batch;
  batch.step = step;
  batch.epoch = epoch_of(step);
  plan(batch.epoch);
  const auto [first, last] = bounds_[static_cast<size_t>(step - first_steps_[static_cast<size_t>(batch.epoch)])];
  batch.source_offsets.push_back(0);
  batch.target_offsets.push_back(0);
  for (int64_t i = first; i < last; ++i) {
    const int64_t item = order_[static_cast<size_t>(i)];
    batch.items.push_back(item);
    const std::span<const int32_t> x = corpus_->source(item), y = corpus_->target(item);
    batch.source.insert(batch.source.end(), x.begin(), x.end());
    batch.target_in.push_back(corpus_->bos());
    batch.target_in.insert(batch.target_in.end(), y.begin(), y.end());
    batch.target_out.insert(batch.target_out.end(), y.begin(), y.end());
    batch.target_out.push_back(corpus_->eos());
    batch.source_offsets.push_back(static_cast<int64_t>(batch.source.size()));
    batch.target_offsets.push_back(static_cast<int64_t>(batch.target_in.size()));
  }
  return batch;
}

}  // namespace hinge::text
