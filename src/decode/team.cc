#include "decode/team.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "ops/gemm.h"

namespace hinge::decode {
namespace {

using at::Tensor;

// What the others are to do, with its numbers: of encode, the sequences' offsets and tokens behind their number.
enum class Order : int64_t { encode, step, reorder, end };

// A message begins with the order, how many numbers there are, and the first of them. Those of a step are seldom more.
constexpr int64_t kBegin = 64;

Tensor tensor_of(std::span<const int64_t> values) { return at::tensor(at::ArrayRef<int64_t>(values.data(), values.size()), at::kLong); }

void send_to_all(const Tensor& numbers, nn::SequenceRanks& ranks) {
  std::vector<int64_t> sizes(static_cast<size_t>(ranks.count()), numbers.numel());
  sizes[0] = 0;
  Tensor nothing = at::empty({0}, at::kLong);
  ranks.all_to_all(numbers.repeat({ranks.count() - 1}), sizes, nothing, std::vector<int64_t>(sizes.size()));
}

Tensor received(int64_t count, nn::SequenceRanks& ranks) {
  std::vector<int64_t> sizes(static_cast<size_t>(ranks.count()));
  const std::vector<int64_t> nothing = sizes;
  sizes[0] = count;
  Tensor numbers = at::empty({count}, at::kLong);
  ranks.all_to_all(at::empty({0}, at::kLong), nothing, numbers, sizes);
  return numbers;
}

void tell(Order order, const Tensor& numbers, nn::SequenceRanks& ranks) {
  if (ranks.count() == 1) return;
  const int64_t size = numbers.numel(), first = std::min(size, kBegin);
  const Tensor begin = at::zeros({2 + kBegin}, at::kLong);
  begin[0] = static_cast<int64_t>(order), begin[1] = size;
  begin.narrow(0, 2, first).copy_(numbers.narrow(0, 0, first));
  send_to_all(begin, ranks);
  if (size > first) send_to_all(numbers.narrow(0, first, size - first), ranks);
}

std::pair<Order, Tensor> heard(nn::SequenceRanks& ranks) {
  const Tensor begin = received(2 + kBegin, ranks);
  const auto order = static_cast<Order>(begin[0].item<int64_t>());
  const int64_t size = begin[1].item<int64_t>(), first = std::min(size, kBegin);
  const Tensor numbers = begin.narrow(0, 2, first);
  return {order, size > first ? at::cat({numbers, received(size - first, ranks)}) : numbers};
}

models::KvCache encoded(const models::Seq2Seq& model, const models::Sequences& source, nn::SequenceRanks* ranks) {
  if (ranks) tell(Order::encode, at::cat({at::full({1}, source.count(), at::kLong), source.offsets, source.tokens}), *ranks);
  return model.encode(source, ranks);
}

}  // namespace

DecoderSteps::DecoderSteps(const models::Seq2Seq& model, const models::Sequences& source, nn::SequenceRanks* ranks)
    : model_(model), ranks_(ranks), cache_(encoded(model, source, ranks)) {}

Tensor DecoderSteps::step(std::span<const int64_t> tokens) {
  const Tensor read = tensor_of(tokens);
  if (ranks_) tell(Order::step, read, *ranks_);
  return model_.step(read, cache_);
}

void DecoderSteps::reorder(std::span<const int64_t> indices) {
  const Tensor from = tensor_of(indices);
  if (ranks_) tell(Order::reorder, from, *ranks_);
  cache_.reorder(from);
}

int64_t follow(const models::Seq2Seq& model, nn::SequenceRanks& ranks) {
  PackedWeights weights;
  const PackedWeights::Use use(weights);
  std::optional<models::KvCache> cache;
  for (;;) {
    const auto [order, numbers] = heard(ranks);
    switch (order) {
      case Order::encode: {
        const int64_t offsets = numbers[0].item<int64_t>() + 1;
        cache.reset();
        cache.emplace(model.encode({numbers.narrow(0, 1 + offsets, numbers.numel() - 1 - offsets), numbers.narrow(0, 1, offsets)}, &ranks));
        break;
      }
      case Order::step: model.step(numbers, cache.value()); break;
      case Order::reorder: cache.value().reorder(numbers); break;
      case Order::end: return numbers[0].item<int64_t>();
    }
  }
}

void end_following(nn::SequenceRanks& ranks, int64_t code) { tell(Order::end, at::full({1}, code, at::kLong), ranks); }

}  // namespace hinge::decode
