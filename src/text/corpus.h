// Parallel text as token ids: one item a sentence, or documents cut at sentence ends.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/parallel.h"
#include "text/vocabulary.h"

namespace hinge::text {

// What a pair with too many tokens does: it is dropped, or truncated. Both are counted.
enum class OverLong { drop, truncate };
inline std::vector<std::pair<std::string, OverLong>> config_words(OverLong) {
  return {{"drop", OverLong::drop}, {"truncate", OverLong::truncate}};
}

struct CorpusOptions {
  int64_t document_tokens = 0;  // 0: every pair is an item; else consecutive pairs of a document, up to so many tokens on either side
  int64_t longest = 256;        // tokens of a pair on either side, if documents are not cut
  OverLong over_long = OverLong::drop;
};

// An item is at most n tokens long on either side (n = document_tokens, or longest), the end token included.
class Corpus {
 public:
  // Several readers encode a part of the pairs each, and all have the whole corpus.
  Corpus(const ParallelText& text, const Vocabulary& vocabulary, const CorpusOptions& options, const Readers& readers = {});

  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  std::span<const int32_t> source(int64_t i) const { return part(source_, source_offsets_, i); }  // with eos
  std::span<const int32_t> target(int64_t i) const { return part(target_, target_offsets_, i); }  // without bos and eos
  int64_t source_length(int64_t i) const { return static_cast<int64_t>(source(i).size()); }
  int64_t target_length(int64_t i) const { return static_cast<int64_t>(target(i).size()) + 1; }  // with one of them

  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  int64_t source_tokens() const { return source_offsets_.back(); }
  int64_t target_tokens() const { return target_offsets_.back() + size(); }
  const Counts& skipped() const { return skipped_; }  // pairs left out, by reason
  int64_t cut() const { return cut_; }                // pairs of which a side was truncated

  // The pairs of `text` that make up item i: those of one document, from `first` on.
  struct Place {
    int64_t document = 0, first = 0, pairs = 0;
  };
  const Place& place(int64_t i) const { return places_[static_cast<size_t>(i)]; }
  std::string place_name(int64_t i) const;  // for messages: "pair 3 of train.en:1", the document that begins there

 private:
  using Ids = std::vector<int32_t>;
  static std::span<const int32_t> part(const Ids& ids, const std::vector<int64_t>& offsets, int64_t i) {
    const auto at = static_cast<size_t>(i);
    return {ids.data() + offsets[at], static_cast<size_t>(offsets[at + 1] - offsets[at])};
  }
  void add(const Ids& source, const Ids& target, const Place& place);

  int32_t bos_, eos_;
  Ids source_, target_;  // of all items, one behind the other
  std::vector<int64_t> source_offsets_ = {0}, target_offsets_ = {0};
  std::vector<Place> places_;
  std::vector<std::string> documents_;  // their names
  Counts skipped_;
  int64_t cut_ = 0;
};

// The source and target texts of an item, sentences joined by a space: what is translated, and what a translation is scored against.
Pair joined(const ParallelText& text, const Corpus::Place& place);

// Gets the target sides of these items, which may be at other readers.
void fill_in_targets(ParallelText& text, const std::vector<Corpus::Place>& places, const Readers& readers);

// Leaves out and counts the pairs whose source has more than `most` tokens, the end token included: what a model cannot read.
int64_t leave_out_long_sources(ParallelText& text, const Vocabulary& vocabulary, int64_t most);

}  // namespace hinge::text
