// The alignment of a whole translation with all references, row by row; of the table, only where paths cross the ends of references is
// kept.
#include "text/resegment.h"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <unordered_map>

#include "text/score.h"

namespace hinge::text {
namespace {

// Equal words have equal numbers.
class Numbering {
 public:
  std::vector<int32_t> operator()(const std::vector<std::string>& words) {
    std::vector<int32_t> numbers;
    for (const std::string& word : words) numbers.push_back(known_.try_emplace(word, static_cast<int32_t>(known_.size())).first->second);
    return numbers;
  }

 private:
  std::unordered_map<std::string, int32_t> known_;
};

// The cheapest path to each place of the translation when a number of words of the references are read.
struct Row {
  int64_t error = 1;           // what a word error costs
  std::vector<int64_t> costs;  // [words + 1]
  std::vector<size_t> begins;  // where the path entered the reference at hand
};

// Reads one more word of the references.
void advance(Row& row, const std::vector<int32_t>& words, int32_t reference) {
  int64_t diagonal = row.costs[0];
  size_t diagonal_begin = row.begins[0];
  row.costs[0] += row.error;
  for (size_t i = 1; i <= words.size(); ++i) {
    const int64_t matched = diagonal + (words[i - 1] == reference ? 0 : row.error), deleted = row.costs[i] + row.error,
                  inserted = row.costs[i - 1] + row.error;
    const size_t begin = diagonal_begin;
    diagonal = row.costs[i], diagonal_begin = row.begins[i];
    if (matched <= deleted && matched <= inserted)
      row.costs[i] = matched, row.begins[i] = begin;
    else if (deleted <= inserted)
      row.costs[i] = deleted;
    else
      row.costs[i] = inserted, row.begins[i] = row.begins[i - 1];
  }
}

}  // namespace

std::vector<std::string> resegment(std::string_view translation, const std::vector<std::string>& references) {
  Numbering numbering;
  const std::vector<std::string> tokens = tokenize_13a(translation);
  const std::vector<int32_t> words = numbering(tokens);
  // A part that ends otherwise than its reference costs 1: all of them less than an error.
  Row row{static_cast<int64_t>(references.size()) + 1, std::vector<int64_t>(words.size() + 1), std::vector<size_t>(words.size() + 1)};
  for (size_t i = 0; i <= words.size(); ++i) row.costs[i] = static_cast<int64_t>(i) * row.error;
  std::vector<std::vector<size_t>> begins;  // of each reference, by the place where the path leaves it
  for (const std::string& reference : references) {
    const std::vector<int32_t> expected = numbering(tokenize_13a(reference));
    for (const int32_t word : expected) advance(row, words, word);
    for (size_t i = 1; i <= words.size(); ++i) row.costs[i] += expected.empty() || words[i - 1] == expected.back() ? 0 : 1;
    begins.push_back(row.begins);
    std::iota(row.begins.begin(), row.begins.end(), size_t{0});
  }
  std::vector<std::string> parts(references.size());
  size_t end = words.size();
  for (size_t i = references.size(); i-- > 0;) {
    const size_t begin = begins[i][end];
    for (size_t at = begin; at < end; ++at) parts[i] += (at > begin ? " " : "") + tokens[at];
    end = begin;
  }
  return parts;
}

}  // namespace hinge::text
