// Encodes and cuts.
#include "text/corpus.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>

#include "support/threads.h"

namespace hinge::text {
namespace {

void append(std::vector<int32_t>& to, const std::vector<int32_t>& more) { to.insert(to.end(), more.begin(), more.end()); }

struct Encoded {
  std::vector<int32_t> source, target;
};

// Fills in the ids of the pairs that other readers have encoded. A pair travels as its number, its lengths and its ids.
void share(std::vector<Encoded>& encoded, const std::vector<size_t>& own, const Readers& readers) {
  std::vector<int32_t> numbers;
  for (const size_t i : own) {
    const auto& [source, target] = encoded[i];
    numbers.insert(numbers.end(), {static_cast<int32_t>(i), static_cast<int32_t>(source.size()), static_cast<int32_t>(target.size())});
    append(numbers, source), append(numbers, target);
  }
  const std::vector<std::string> all =
      readers.all_gather(std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int32_t)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (static_cast<int>(rank) == readers.rank) continue;
    numbers.resize(all[rank].size() / sizeof(int32_t));
    std::memcpy(numbers.data(), all[rank].data(), all[rank].size());
    for (auto at = numbers.begin(); at != numbers.end();) {
      auto& [source, target] = encoded.at(static_cast<size_t>(at[0]));
      const auto middle = at + 3 + at[1], end = middle + at[2];
      source.assign(at + 3, middle), target.assign(middle, end);
      at = end;
    }
  }
}

// The ids of all pairs, one document after the other; encoded by several threads, as it takes 0.1 ms a sentence, and by several readers: of
// a text that each has a part of, by those who have it.
std::vector<Encoded> encode(const ParallelText& text, const Vocabulary& vocabulary, const Readers& readers) {
  std::vector<const Pair*> pairs;
  for (const Document& document : text.documents)
    for (const Pair& pair : document.pairs) pairs.push_back(&pair);
  std::vector<size_t> own;
  for (size_t i = 0; i < pairs.size(); ++i)
    if (text.partial ? !pairs[i]->source.empty() : readers.own(static_cast<int64_t>(i))) own.push_back(i);
  std::vector<Encoded> encoded(pairs.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    constexpr size_t kRun = 256;
    for (size_t first; (first = next.fetch_add(kRun)) < own.size();)
      for (size_t place = first; place < std::min(first + kRun, own.size()); ++place) {
        const size_t i = own[place];
        encoded[i] = {vocabulary.encode(pairs[i]->source), vocabulary.encode(pairs[i]->target)};
      }
  };
  std::vector<std::future<void>> others;  // which carry errors over
  for (int i = 1; i < support::default_threads() && static_cast<size_t>(i) * 1000 < own.size(); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  if (!readers.alone()) share(encoded, own, readers);
  return encoded;
}

// The sentences of a document are put one behind the other as they were encoded.
void require_spaces(const std::vector<Encoded>& encoded, const Vocabulary& vocabulary) {
  constexpr std::string_view kSpace = "\u2581";
  for (const auto& [source, target] : encoded) {
    if (source.empty() || source.front() == vocabulary.unk()) continue;
    if (vocabulary.piece(source.front()).starts_with(kSpace) || vocabulary.piece(source.back()).ends_with(kSpace)) return;
    throw std::runtime_error(
        "corpus: this vocabulary puts no space in front of a sentence (SentencePiece's add_dummy_prefix is off), so that the sentences of "
        "documents would run together: give a data.vocabulary_file that does, or none");
  }
}

}  // namespace

Corpus::Corpus(const ParallelText& text, const Vocabulary& vocabulary, const CorpusOptions& options, const Readers& readers)
    : bos_(vocabulary.bos()), eos_(vocabulary.eos()) {
  const bool documents = options.document_tokens > 0;
  const int64_t most = documents ? options.document_tokens : options.longest;
  if (options.document_tokens < 0 || most < 2)
    throw std::runtime_error(fmt::format("corpus: document_tokens {} and longest {} are not allowed: give 0 or at least 2 tokens",
                                         options.document_tokens, options.longest));
  const auto room = static_cast<size_t>(most - 1);  // the rest is for eos, or bos

  std::vector<Encoded> encoded = encode(text, vocabulary, readers);
  if (documents) require_spaces(encoded, vocabulary);
  size_t at = 0;  // of encoded
  for (size_t d = 0; d < text.documents.size(); ++d) {
    const std::vector<Pair>& pairs = text.documents[d].pairs;
    documents_.push_back(text.documents[d].name);
    Ids source, target;
    Place place{static_cast<int64_t>(d), 0, 0};
    const auto close = [&](size_t next) {
      if (place.pairs > 0) add(source, target, place);
      source.clear();
      target.clear();
      place = {static_cast<int64_t>(d), static_cast<int64_t>(next), 0};
    };
    for (size_t p = 0; p < pairs.size(); ++p) {
      auto& [from, to] = encoded[at++];
      if (std::max(from.size(), to.size()) > room) {
        ++(options.over_long == OverLong::drop ? skipped_["over-long"] : cut_);
        close(p);
        if (options.over_long == OverLong::drop) {
          close(p + 1);
          continue;
        }
        from.resize(std::min(from.size(), room));
        to.resize(std::min(to.size(), room));
      }
      if (!documents || source.size() + from.size() > room || target.size() + to.size() > room) close(p);
      append(source, from);
      append(target, to);
      ++place.pairs;
    }
    close(pairs.size());
  }
  if (places_.empty())
    throw std::runtime_error(
        fmt::format("corpus: no item is left: all {} pairs are longer than {} tokens; allow more", text.pairs(), most));
}

void Corpus::add(const Ids& source, const Ids& target, const Place& place) {
  append(source_, source);
  source_.push_back(eos_);
  append(target_, target);
  source_offsets_.push_back(static_cast<int64_t>(source_.size()));
  target_offsets_.push_back(static_cast<int64_t>(target_.size()));
  places_.push_back(place);
}

std::string Corpus::place_name(int64_t i) const {
  const Place& at = place(i);
  const std::string& document = documents_[static_cast<size_t>(at.document)];
  if (at.pairs == 1) return fmt::format("pair {} of {}", at.first + 1, document);
  return fmt::format("pairs {} to {} of {}", at.first + 1, at.first + at.pairs, document);
}

Pair joined(const ParallelText& text, const Corpus::Place& place) {
  Pair all;
  const std::vector<Pair>& pairs = text.documents.at(static_cast<size_t>(place.document)).pairs;
  for (int64_t i = place.first; i < place.first + place.pairs; ++i) {
    const Pair& pair = pairs.at(static_cast<size_t>(i));
    all.source += (all.source.empty() ? "" : " ") + pair.source;
    all.target += (all.target.empty() ? "" : " ") + pair.target;
  }
  return all;
}

void fill_in_targets(ParallelText& text, const std::vector<Corpus::Place>& places, const Readers& readers) {
  std::vector<std::string*> targets;
  for (const Corpus::Place& place : places)
    for (int64_t i = place.first; i < place.first + place.pairs; ++i)
      targets.push_back(&text.documents.at(static_cast<size_t>(place.document)).pairs.at(static_cast<size_t>(i)).target);
  std::string own;  // a number, a target and the end of its line, for each that is here
  for (size_t i = 0; i < targets.size(); ++i)
    if (!targets[i]->empty()) own += fmt::format("{} {}\n", i, *targets[i]);
  for (const std::string& lines : readers.all_gather(own))
    for (size_t at = 0; at < lines.size();) {
      const size_t space = lines.find(' ', at), end = lines.find('\n', space);
      *targets.at(std::stoull(lines.substr(at, space - at))) = lines.substr(space + 1, end - space - 1);
      at = end + 1;
    }
}

int64_t leave_out_long_sources(ParallelText& text, const Vocabulary& vocabulary, int64_t most) {
  int64_t left_out = 0;
  for (Document& document : text.documents)
    left_out += static_cast<int64_t>(std::erase_if(
        document.pairs, [&](const Pair& pair) { return static_cast<int64_t>(vocabulary.encode(pair.source).size()) + 1 > most; }));
  std::erase_if(text.documents, [](const Document& document) { return document.pairs.empty(); });
  return left_out;
}

}  // namespace hinge::text
