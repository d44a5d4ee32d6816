#include "decode/beam_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "hinge/kernels/top_k.h"

namespace hinge::decode {
namespace {

double penalty(const SearchOptions& options, int64_t length) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, options.length_penalty);
}

// A hypothesis that has not ended.
struct Live {
  std::vector<int32_t> tokens;
  double log_probability = 0;
  int64_t row = 0;  // among those of its sentence
};

// A live hypothesis with one more token.
struct Continuation {
  double log_probability = 0;
  size_t parent = 0;  // its rank
  int32_t token = 0;
};

bool better(const Continuation& a, const Continuation& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  if (a.parent != b.parent) return a.parent < b.parent;
  return a.token < b.token;
}

// What the rows of one sentence say in one step; row 0 is its first.
struct RowsOfStep {
  const float* logits = nullptr;   // [rows, vocabulary]
  const int32_t* index = nullptr;  // [rows, k]
  const float* log_probability = nullptr;
  const float* log_normaliser = nullptr;
  int64_t vocabulary = 0, k = 0;
};

class SentenceSearch {
 public:
  SentenceSearch(const SearchProblem& problem, const SearchOptions& options, int64_t longest)
      : problem_(problem), options_(options), longest_(longest), live_(1) {}

  bool over() const { return live_.empty(); }
  const std::vector<Live>& live() const { return live_; }  // best first

  // One step. parents[row] is the row that what is in `row` from now on came from.
  void advance(const RowsOfStep& step, std::vector<int64_t>& parents) {
    const int64_t length = static_cast<int64_t>(live_[0].tokens.size()) + 1;
    parents.clear();
    if (length >= longest_) {
      for (const Live& one : live_)
        end(one, one.log_probability + step.logits[one.row * step.vocabulary + problem_.eos] - step.log_normaliser[one.row]);
      live_.clear();
      return;
    }
    continuations_.clear();
    for (size_t parent = 0; parent < live_.size(); ++parent) {
      const Live& one = live_[parent];
      for (int64_t i = one.row * step.k; i < (one.row + 1) * step.k; ++i)
        if (std::find(problem_.forbidden.begin(), problem_.forbidden.end(), step.index[i]) == problem_.forbidden.end())
          continuations_.push_back({one.log_probability + static_cast<double>(step.log_probability[i]), parent, step.index[i]});
    }
    // Each hypothesis ends in one way, so that among the first `most` there are `beam` that live on.
    const size_t beam = static_cast<size_t>(options_.beam), most = std::min(continuations_.size(), beam + live_.size());
    std::partial_sort(continuations_.begin(), continuations_.begin() + static_cast<std::ptrdiff_t>(most), continuations_.end(), better);
    std::vector<Live> next;
    for (size_t rank = 0; rank < most && next.size() < beam; ++rank) {
      const Continuation& one = continuations_[rank];
      const Live& parent = live_[one.parent];
      if (one.token == problem_.eos) {
        if (rank < beam) end(parent, one.log_probability);
        continue;
      }
      Live extended{parent.tokens, one.log_probability, parent.row};
      extended.tokens.push_back(one.token);
      next.push_back(std::move(extended));
    }
    live_ = std::move(next);
    if (enough(length)) live_.clear();
    give_rows(parents);
  }

  std::vector<Hypothesis> result() {
    if (static_cast<int64_t>(ended_.size()) > options_.n_best) ended_.resize(static_cast<size_t>(options_.n_best));
    return std::move(ended_);
  }

 private:
  void end(const Live& live, double log_probability) {
    Hypothesis ended{live.tokens, log_probability / penalty(options_, static_cast<int64_t>(live.tokens.size()) + 1), log_probability};
    const auto place =
        std::upper_bound(ended_.begin(), ended_.end(), ended.score, [](double score, const Hypothesis& h) { return score > h.score; });
    ended_.insert(place, std::move(ended));
  }

  // Live hypotheses have `length` tokens now.
  bool enough(int64_t length) const {
    if (live_.empty() || static_cast<double>(ended_.size()) >= options_.patience * static_cast<double>(options_.beam)) return true;
    const auto n = static_cast<size_t>(options_.n_best);
    if (ended_.size() < n) return false;
    // log p is at most 0: a larger penalty brings it closer to 0.
    const double kindest = penalty(options_, options_.length_penalty > 0 ? longest_ : length + 1);
    return ended_[n - 1].score >= live_[0].log_probability / kindest;
  }

  // A hypothesis stays in the row of its parent if no better one has it: its past need not be copied.
  void give_rows(std::vector<int64_t>& parents) {
    parents.assign(live_.size(), -1);
    std::vector<Live*> others;
    for (Live& one : live_) {
      if (one.row < static_cast<int64_t>(parents.size()) && parents[static_cast<size_t>(one.row)] < 0)
        parents[static_cast<size_t>(one.row)] = one.row;
      else
        others.push_back(&one);
    }
    size_t free = 0;
    for (Live* one : others) {
      while (parents[free] >= 0) ++free;
      parents[free] = one->row;
      one->row = static_cast<int64_t>(free);
    }
  }

  const SearchProblem& problem_;
  const SearchOptions& options_;
  int64_t longest_;
  std::vector<Live> live_;
  std::vector<Hypothesis> ended_;  // best first
  std::vector<Continuation> continuations_;
};

}  // namespace

void check(const SearchOptions& options) {
  if (options.beam < 1 || options.beam > 1000)
    throw std::runtime_error(fmt::format("a beam of {} is not allowed: give 1 (greedy) to 1000 hypotheses", options.beam));
  if (options.n_best < 1 || options.n_best > options.beam)
    throw std::runtime_error(fmt::format("the {} best translations cannot come from a beam of {}: ask for 1 to {}, or for a larger beam",
                                         options.n_best, options.beam, options.beam));
  if (!(std::abs(options.length_penalty) <= 10))
    throw std::runtime_error(
        fmt::format("a length penalty of {} is not allowed: give a number from -10 to 10, usually 0 to 1.5", options.length_penalty));
  if (!(options.patience >= 1)) throw std::runtime_error(fmt::format("a patience of {} is not allowed: give at least 1", options.patience));
}

std::vector<std::vector<Hypothesis>> search(StepFunction& steps, const SearchProblem& problem, const SearchOptions& options,
                                            kernels::Parallel& parallel, SearchCounts* counts) {
  check(options);
  const int64_t sentences = static_cast<int64_t>(problem.longest.size()), vocabulary = problem.vocabulary;
  std::vector<SentenceSearch> searches;
  for (const int64_t longest : problem.longest) searches.emplace_back(problem, options, longest);
  // So many of each row that `beam` are left without the end and the forbidden ones.
  const int64_t k = std::min(vocabulary, options.beam + 1 + static_cast<int64_t>(problem.forbidden.size()));

  std::vector<int64_t> active(static_cast<size_t>(sentences)), tokens(static_cast<size_t>(sentences), problem.bos), indices, parents;
  std::iota(active.begin(), active.end(), int64_t{0});
  std::vector<int32_t> index;
  std::vector<float> log_probability, log_normaliser;
  while (!active.empty()) {
    const auto rows = static_cast<int64_t>(tokens.size());
    const float* logits = steps.step(tokens);
    index.resize(tokens.size() * static_cast<size_t>(k)), log_probability.resize(index.size()), log_normaliser.resize(tokens.size());
    kernels::top_k({rows, vocabulary, k, logits, index.data(), log_probability.data(), log_normaliser.data()}, parallel);
    if (counts) ++counts->steps, counts->rows += rows;
    for (const float normaliser : log_normaliser)
      if (!std::isfinite(normaliser))
        throw std::runtime_error("the model's probabilities are not numbers: its weights are broken or have diverged");

    std::vector<int64_t> still;
    tokens.clear(), indices.clear();
    int64_t first = 0;  // row of the sentence
    for (const int64_t s : active) {
      SentenceSearch& one = searches[static_cast<size_t>(s)];
      const auto had = static_cast<int64_t>(one.live().size());
      one.advance({logits + first * vocabulary, index.data() + first * k, log_probability.data() + first * k, log_normaliser.data() + first,
                   vocabulary, k},
                  parents);
      const size_t base = tokens.size();
      tokens.resize(base + one.live().size());
      for (const Live& live : one.live()) tokens[base + static_cast<size_t>(live.row)] = live.tokens.back();
      for (const int64_t parent : parents) indices.push_back(first + parent);
      if (!one.over()) still.push_back(s);
      first += had;
    }
    active = std::move(still);
    bool same = static_cast<int64_t>(indices.size()) == rows;
    for (size_t i = 0; same && i < indices.size(); ++i) same = indices[i] == static_cast<int64_t>(i);
    if (!active.empty() && !same) steps.reorder(indices);
  }
  std::vector<std::vector<Hypothesis>> results;
  for (SentenceSearch& one : searches) results.push_back(one.result());
  return results;
}

std::vector<std::vector<size_t>> batches_by_length(const std::vector<int64_t>& lengths, int64_t tokens) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> batches;
  int64_t room = 0;
  for (const size_t sentence : order) {
    if (batches.empty() || lengths[sentence] > room) batches.emplace_back(), room = tokens;
    batches.back().push_back(sentence);
    room -= lengths[sentence];
  }
  return batches;
}

}  // namespace hinge::decode
