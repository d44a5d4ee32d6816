// The ranks over which the tokens of a sequence are split, as layers see them. What carries the messages is not known here: processes in
// training (train/processes.h), threads in tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace hinge::nn {

class SequenceRanks {
 public:
  virtual ~SequenceRanks() = default;

  virtual int rank() const = 0;
  virtual int count() const = 0;
  // One round of messages. Part i of `in`, in_sizes[i] elements, goes to rank i; part i of `out` has come from rank i. Contiguous tensors
  // of one type on all ranks. Every rank calls it the same number of times, in the same order.
  virtual void all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_sizes, at::Tensor& out,
                          const std::vector<int64_t>& out_sizes) = 0;
};

// The part of `tokens` tokens that a rank has, [first, second): consecutive ones, as many as the others have or one more.
inline std::pair<int64_t, int64_t> share_of(int64_t tokens, int rank, int count) {
  return {tokens * rank / count, tokens * (rank + 1) / count};
}

// How many tokens of each sequence the ranks have. Rank 0 has the first ones.
struct TokenShares {
  std::vector<int64_t> lengths = {};     // of a batch: of every sequence as many; one number for each rank
  std::vector<at::Tensor> offsets = {};  // jagged: for each rank, where the sequences begin in its rows; int64 [sequences + 1]

  bool jagged() const { return !offsets.empty(); }
  int ranks() const { return static_cast<int>(jagged() ? offsets.size() : lengths.size()); }
  int64_t of_rank(int rank) const;  // of all sequences if jagged, else of each
  int64_t tokens() const;           // of all ranks

  // Of a batch of sequences of `tokens` tokens.
  static TokenShares of_batch(int64_t tokens, int count);
  // Of jagged sequences, offsets int64 [sequences + 1] of whole ones: each is split by itself.
  static TokenShares of_sequences(const at::Tensor& offsets, int count);
};

// Which of the rows of whole jagged sequences a rank has, int64, in their order.
at::Tensor rows_of_rank(const at::Tensor& offsets, int rank, int count);

// What a model whose tokens are split gives to its layers.
struct SequenceSplit {
  SequenceRanks* ranks = nullptr;
  TokenShares own = {};      // of the tokens that the layers work on
  TokenShares context = {};  // of those that cross-attention attends to
  at::Tensor numbers = {};   // of this rank's rows among those of all ranks, int64: what is dropped depends on them
};

// Which ranks' tensors a rank adds up: all, all but its own, or those of the ranks before it.
enum class Summands { all, others, earlier };
// The sum of the ranks' tensors, which are of one shape, in the order of the ranks; with autograd. One round each for forward and backward.
at::Tensor sum_over_ranks(const at::Tensor& x, SequenceRanks& ranks, Summands which = Summands::all);

}  // namespace hinge::nn
