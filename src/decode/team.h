// Decoding by ranks that share the tokens of long sources (models::Seq2Seq::encode). Rank 0 reads the input, searches and says what comes
// next; the others repeat each of its steps for the keys and values that they hold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/seq2seq.h"

namespace hinge::decode {

// The decoder with what it has read so far, alone (without ranks) or as rank 0 of a team.
class DecoderSteps {
 public:
  DecoderSteps(const models::Seq2Seq& model, const models::Sequences& source, nn::SequenceRanks* ranks);

  at::Tensor step(std::span<const int64_t> tokens);  // logits [R, V] of what follows one more token per row
  void reorder(std::span<const int64_t> indices);    // models::KvCache::reorder

 private:
  const models::Seq2Seq& model_;
  nn::SequenceRanks* ranks_;
  models::KvCache cache_;
};

// Another rank's part, until rank 0 ends it. Returns what rank 0 has said then.
int64_t follow(const models::Seq2Seq& model, nn::SequenceRanks& ranks);
// By rank 0, when nothing more is to be decoded.
void end_following(nn::SequenceRanks& ranks, int64_t code);

}  // namespace hinge::decode
