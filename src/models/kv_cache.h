// The KV cache of a decoder: the keys and values of what it has read so far, for R rows (hypotheses), all of the same length, in the order
// of their sentences.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/block.h"

namespace hinge::models {

class KvCache {
 public:
  // A row for each of the sentences that `source_offsets` (int64 [sentences + 1]) tells apart. context[i]: the keys and values of all
  // source tokens in block i, [S, 2 C]; with a split, of this rank's, to which the offsets then belong.
  KvCache(std::vector<at::Tensor> context, const at::Tensor& source_offsets, std::optional<nn::SequenceSplit> split = {});
  KvCache(KvCache&&) = default;  // a copy would share what a step writes
  KvCache& operator=(KvCache&&) = default;

  int64_t rows() const { return static_cast<int64_t>(sentence_.size()); }
  int64_t length() const { return length_; }                           // tokens that each row holds
  const std::vector<int64_t>& sentences() const { return sentence_; }  // of each row: its sentence in the source, never decreasing

  // Makes room for one more token per row, which the blocks then write at length(); a step ends with advance().
  void make_room();
  void advance() { ++length_; }
  const nn::BlockCache& block(size_t i) const { return blocks_[i]; }
  nn::Offsets cross() const { return {row_offsets_, source_offsets_}; }  // which source tokens a row attends to
  const nn::SequenceSplit* split() const { return split_ ? &*split_ : nullptr; }

  // Row i becomes what row indices[i] was (int64 [new R]): beams that go on, multiply or end. The rows of a sentence must stay together, in
  // the order of sentences; a sentence may lose all its rows.
  void reorder(const at::Tensor& indices);

 private:
  std::vector<nn::BlockCache> blocks_;
  std::vector<int64_t> sentence_;
  int64_t length_ = 0, room_ = 0;
  at::Tensor source_offsets_, row_offsets_;
  std::optional<nn::SequenceSplit> split_;
  std::vector<int32_t> writer_;  // [rows, room]: the row that wrote what is at a place of `past`; reorder() copies only what differs
};

}  // namespace hinge::models
