// Attention whose tokens are split over ranks: each has some queries, and some keys and values, and gets what its own queries read from all
// keys. Scores are never sent. Either queries travel to the keys, and what they read there comes back:
//
//   forward     q ->   <- out                      of each rank's keys; the partial results add up
//   backward    q, dO ->   <- dq                   dk and dv stay
//
// or keys and values travel to the queries:
//
//   forward     k, v ->
//   backward    k, v ->   <- dk, dv                dq stays
//
// In point-wise attention the partial results are one plain sum. Softmax's carry the logarithm of their sum (lse), by which they are
// weighed; its backward sends lse and dO . out along with dO. The identity can do with sums of D x D matrices (Travel::sums).
//
// Legend: B batch, Hq and Hkv heads, Lq and Lk tokens of this rank, D and Dv widths, P ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hinge/ops/attention.h"
#include "nn/sequence_ranks.h"

namespace hinge::nn {

// What goes from rank to rank. sums: k^T v [D, Dv] and the sum of the values, of each head; for the identity, without statistics.
enum class Travel { queries, keys, sums };

struct SequenceAttentionResult {
  at::Tensor out;                     // [B, Hq, Lq, Dv]
  at::Tensor weight_sum, weight_log;  // [B, Hq, Lq], differentiable; undefined unless asked for
};

// q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv], float32 or float64; jagged with B = 1. The options say what holds for the whole
// sequences: key_lengths counts the tokens of all ranks; offsets are left to `queries` and `keys`, the shares of all ranks. Causal needs
// the same shares of queries and keys. Gradients are exact; those of gain, bias and alpha are this rank's part of a sum. Throws c10::Error
// for options that need more than a part of a row: windows, masks, dropout.
SequenceAttentionResult sequence_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options,
                                           bool statistics, SequenceRanks& ranks, const TokenShares& queries, const TokenShares& keys,
                                           Travel travel);

// What queries that every rank has read from the keys of all, without gradients: each rank reads from its own keys, and sends the partial
// result to all others in one round. Jagged, B = 1; q_offsets int64 [sequences + 1] tells the sequences apart in q [1, Hq, Lq, D], the same
// on all ranks; not causal.
at::Tensor read_by_all(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options, SequenceRanks& ranks,
                       const at::Tensor& q_offsets, const TokenShares& keys);

// Elements that a rank sends to another one, forward and backward, if it has Lq queries and Lk keys.
struct TravelCost {
  int64_t forward = 0, backward = 0;
};
TravelCost travel_cost(Travel travel, const AttentionOptions& options, bool statistics, int64_t B, int64_t Hq, int64_t Hkv, int64_t Lq,
                       int64_t Lk, int64_t D, int64_t Dv);
// What sends the fewest bytes in forward and backward together, over all ranks.
Travel cheapest_travel(const AttentionOptions& options, bool statistics, int64_t B, int64_t Hq, int64_t Hkv, int64_t D, int64_t Dv,
                       const TokenShares& queries, const TokenShares& keys);

// How many keys each of this rank's rows sees, float64, [B or 1, 1, Lq].
at::Tensor keys_seen(const AttentionOptions& options, const SequenceRanks& ranks, const TokenShares& queries, const TokenShares& keys);

}  // namespace hinge::nn
