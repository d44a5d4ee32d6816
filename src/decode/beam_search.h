// Search for the likeliest sequences, token by token: greedy and beam search over whatever extends rows of hypotheses. No torch here: the
// transformer is behind StepFunction (decode/translator.h), and tests walk through tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hinge/kernels/parallel.h"

namespace hinge::decode {

// What extends hypotheses. Its rows are hypotheses, those of a sentence side by side and in the order of the sentences; in the beginning
// there is one for each sentence.
class StepFunction {
 public:
  virtual ~StepFunction() = default;

  // Every row reads its token. Logits [rows, vocabulary] of what follows, normalised or not, which stay until the next call.
  virtual const float* step(std::span<const int64_t> tokens) = 0;
  // Row i becomes what row indices[i] was. Not called where nothing would change.
  virtual void reorder(std::span<const int64_t> indices) = 0;
};

// A hypothesis that has ended has the score
//
//   log p / ((5 + n) / 6)^length_penalty,      n its tokens with the end token
//
// (Wu et al. 2016, without their coverage). 0: the score is log p, and short hypotheses win too often; larger: longer ones win.
//
// A step of a sentence's search: of all continuations of its live hypotheses, in falling order of log p, those among the first `beam` that
// end have ended; the first `beam` others live on. At the longest length only the end is allowed. The search is over
//   * when `patience` * `beam` hypotheses have ended, rounded up to a whole number, or
//   * before that, when it is certain that no live one can become better than the last of the `n_best` that have ended: log p can only
//     fall, so that the best it can reach is its log p now with the kindest length that is left.
// The second rule never changes a result; with patience = infinity it is the only one. beam = 1 is greedy search.
struct SearchOptions {
  int64_t beam = 4;
  int64_t n_best = 1;  // how many to return, at most; not more than beam
  double length_penalty = 0.6;
  double patience = 1;  // at least 1
};

// Throws std::runtime_error: what was given and what is allowed.
void check(const SearchOptions& options);

struct SearchProblem {
  int64_t vocabulary = 0;
  int32_t bos = 0, eos = 0;
  std::vector<int32_t> forbidden;  // never part of a hypothesis, though their probability counts
  std::vector<int64_t> longest;    // of each sentence: tokens of the longest hypothesis with the end token, at least 1
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // without the end token
  double score = 0, log_probability = 0;
};

struct SearchCounts {
  int64_t steps = 0, rows = 0;  // rows: of all steps together
};

// Of each sentence the best hypotheses, best first; at least one. Sentences leave the batch as soon as their search is over. Equal scores
// go by which ended first, equal continuations by the rank of what they continue, then by the token's number: nothing depends on the batch.
// Throws std::runtime_error if a row of logits has no finite normaliser.
std::vector<std::vector<Hypothesis>> search(StepFunction& steps, const SearchProblem& problem, const SearchOptions& options,
                                            kernels::Parallel& parallel, SearchCounts* counts = nullptr);

// Splits sentences of these lengths into batches of neighbours in length, the longest first: each of at most `tokens` tokens, or of one
// sentence that is longer. Numbers of the sentences; those of equal length stay in their order.
std::vector<std::vector<size_t>> batches_by_length(const std::vector<int64_t>& lengths, int64_t tokens);

}  // namespace hinge::decode
