#include "models/kv_cache.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "support/require.h"

namespace hinge::models {

using at::Tensor;
using support::require;

KvCache::KvCache(std::vector<Tensor> context, const Tensor& source_offsets, std::optional<nn::SequenceSplit> split)
    : sentence_(static_cast<size_t>(source_offsets.numel() - 1)),
      source_offsets_(source_offsets),
      row_offsets_(at::arange(source_offsets.numel(), at::kLong)),
      split_(std::move(split)) {
  for (Tensor& one : context) blocks_.push_back({Tensor(), std::move(one)});
  std::iota(sentence_.begin(), sentence_.end(), int64_t{0});
}

void KvCache::make_room() {
  if (length_ + 1 > room_ || !blocks_[0].past.defined()) {
    const int64_t room = std::max<int64_t>({16, length_ + 1, 2 * room_});
    for (nn::BlockCache& block : blocks_) {
      const Tensor larger = at::empty({rows(), room, block.context.size(1)}, block.context.options());
      if (block.past.defined()) larger.narrow(1, 0, length_).copy_(block.past.narrow(0, 0, rows()).narrow(1, 0, length_));
      block.past = larger;
    }
    std::vector<int32_t> writer(static_cast<size_t>(rows() * room));
    for (int64_t row = 0; row < rows(); ++row) std::copy_n(writer_.begin() + row * room_, length_, writer.begin() + row * room);
    writer_ = std::move(writer);
    room_ = room;
  }
  for (int64_t row = 0; row < rows(); ++row) writer_[static_cast<size_t>(row * room_ + length_)] = static_cast<int32_t>(row);
}

void KvCache::reorder(const Tensor& indices) {
  require(indices.defined() && indices.scalar_type() == at::kLong && indices.dim() == 1, "reorder takes an int64 tensor of one dimension");
  const at::NoGradGuard guard;
  const int64_t before = rows(), after = indices.size(0), length = length_, room = room_;
  const Tensor from = indices.contiguous();
  const int64_t* source = from.data_ptr<int64_t>();
  std::vector<int64_t> sentence;
  for (int64_t i = 0; i < after; ++i) {
    if (source[i] < 0 || source[i] >= before)
      throw std::runtime_error(fmt::format("reorder: there is no row {} in a cache of {} rows", source[i], before));
    sentence.push_back(sentence_[static_cast<size_t>(source[i])]);
  }
  require(std::is_sorted(sentence.begin(), sentence.end()),
          "reorder: the rows of a sentence must stay together, in the order of sentences");

  // A place that was written by the same row at the same step holds the same already: beams share most of their past.
  const auto writer_of = [&](int64_t row) { return writer_.begin() + row * room; };
  if (length > 0 && blocks_[0].past.size(0) >= after) {
    std::vector<int64_t> read, write;
    for (int64_t i = 0; i < after; ++i)
      for (int64_t p = 0; p < length; ++p)
        if (i >= before || writer_of(i)[p] != writer_of(source[i])[p]) read.push_back(source[i] * room + p), write.push_back(i * room + p);
    if (!read.empty()) {
      const Tensor read_at = at::tensor(read, at::kLong), write_at = at::tensor(write, at::kLong);
      for (const nn::BlockCache& block : blocks_) {
        const Tensor places = block.past.view({-1, block.past.size(2)});
        places.index_copy_(0, write_at, places.index_select(0, read_at));  // all is read before anything is written
      }
    }
  } else if (length > 0) {
    for (nn::BlockCache& block : blocks_) {
      const Tensor larger = at::empty({after, room, block.past.size(2)}, block.past.options());
      larger.narrow(1, 0, length).copy_(block.past.narrow(1, 0, length).index_select(0, from));
      block.past = larger;
    }
  }
  if (length > 0) {
    std::vector<int32_t> writer(static_cast<size_t>(std::max(after, blocks_[0].past.size(0)) * room));
    for (int64_t i = 0; i < after; ++i) std::copy_n(writer_of(source[i]), length, writer.begin() + i * room);
    writer_ = std::move(writer);
  } else {
    for (nn::BlockCache& block : blocks_) block.past = Tensor();
    room_ = 0;
  }
  const int64_t sentences = source_offsets_.numel() - 1;
  std::vector<int64_t> offsets(static_cast<size_t>(sentences + 1));
  for (const int64_t s : sentence) ++offsets[static_cast<size_t>(s + 1)];
  for (size_t s = 1; s < offsets.size(); ++s) offsets[s] += offsets[s - 1];
  row_offsets_ = at::tensor(offsets, at::kLong);
  sentence_ = std::move(sentence);
}

}  // namespace hinge::models
