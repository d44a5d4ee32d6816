// Batches by tokens, jagged: sequences one behind the other, and where each begins. What is in a batch depends on the corpus, the options
// and the step alone, so that a training can go on at any step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/corpus.h"

namespace hinge::text {

struct BatchOptions {
  int64_t tokens = 4096;  // at most so many source tokens, and so many target tokens
  uint64_t seed = 0;
  bool shuffle = true;  // else the shortest first, the same in every epoch
};

struct TextBatch {
  int64_t step = 0, epoch = 0;
  std::vector<int64_t> items;           // N: which items of the corpus these are
  std::vector<int64_t> source;          // x and eos of each item
  std::vector<int64_t> source_offsets;  // N + 1: item i is source[source_offsets[i]] up to source[source_offsets[i + 1]]
  std::vector<int64_t> target_in;       // bos and y
  std::vector<int64_t> target_out;      // y and eos
  std::vector<int64_t> target_offsets;  // N + 1, of both
};

// The batch cut into that many parts of consecutive items, of about as many tokens each; parts may be empty.
std::vector<TextBatch> cut(const TextBatch& batch, int64_t parts);

// The largest power of two of parts into which such batches can be cut so that those who work on the parts side by side seldom wait: in
// the sum over the batches, the longest part takes at most `most` times as long as an even share. Adding up the gradients of the parts
// counts, too. `lengths`: those of each batch's items, source and target together.
int64_t even_parts(const std::vector<std::vector<int64_t>>& lengths, double most);

// An epoch shows every item once. Its items are shuffled and sorted by length, where lengths within 9% of each other count as equal; then
// consecutive ones fill batches, and the batches are shuffled.
class Batches {
 public:
  // Throws std::runtime_error if an item does not fit into a batch: how many do not, where the longest is, and which keys to change.
  Batches(std::shared_ptr<const Corpus> corpus, const BatchOptions& options);

  TextBatch at(int64_t step);  // steps count on through all epochs

  int64_t steps(int64_t epoch);  // of this epoch; epochs differ a little, as their items meet in other batches
  int64_t first_step(int64_t epoch);
  int64_t epoch_of(int64_t step);

  // The lengths of the items of some batches of the first epoch, at most `most`, evenly over it; as of even_parts().
  std::vector<std::vector<int64_t>> sample_lengths(int64_t most);

 private:
  void plan(int64_t epoch);

  std::shared_ptr<const Corpus> corpus_;
  BatchOptions options_;
  std::vector<int64_t> first_steps_ = {0};  // of the epochs planned so far, and the one after them

  // The plan of one epoch: batch b holds order_[bounds_[b].first] up to order_[bounds_[b].second].
  int64_t planned_ = -1;
  std::vector<int32_t> order_;
  std::vector<std::pair<int64_t, int64_t>> bounds_;
};

}  // namespace hinge::text
