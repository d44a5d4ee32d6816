// The machine's own parallel text: the gettext catalogues of the programs that are installed. A catalogue in order is a document.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/parallel.h"

namespace hinge::text {

// "en-de": from English to German. Names are those of locales: pt_BR, sr@latin.
struct LanguagePair {
  std::string source, target;
};
LanguagePair parse_language_pair(const std::string& text);

struct CatalogueOptions {
  std::string root = "/usr/share/locale";  // holds LANGUAGE/LC_MESSAGES/*.mo
  std::string pair = "en-de";
  OnError on_error = OnError::stop;  // for catalogues that cannot be read
  int64_t longest = 5000;            // characters of a message
  double held_out = 0.01;            // share of the messages that goes to each of valid and test
};

struct CatalogueText {
  ParallelText train, valid, test;
  int64_t catalogues = 0, messages = 0;  // read
  Counts skipped;                        // messages and plural forms left out, by reason
};

// English is what programs are written in, so that it needs no catalogues; two other languages meet in the messages both have.
//   plural forms   two pairs: the message for 1 with the form of 1, the plural with the form of 5
//   contexts       msgctxt is dropped, and so is an old "context|" in front of a message whose translation has no "|"
//   hot keys       removed (text/hot_keys.h)
//   format codes   must be the same on both sides (text/format_codes.h)
//   white space    runs of spaces and line ends become one space
// Left out and counted: messages whose format codes differ, that have no letters beside them, are longer than `longest`, name translators,
// or are the same in both languages with more than three words; and pairs that were there already.
CatalogueText read_catalogues(const CatalogueOptions& options);

// What texts that differ in little have in common: lower case; digits are one 0; punctuation and format codes are a space.
std::string near_duplicate_key(std::string_view text);

enum class Part { train, valid, test };
inline std::vector<std::pair<std::string, Part>> config_words(Part) {
  return {{"train", Part::train}, {"valid", Part::valid}, {"test", Part::test}};
}
struct SplitPair {
  const Pair* pair = nullptr;
  std::set<std::string> singulars = {};  // of plural forms: the sources of their messages' forms for one thing
};
// Near-duplicates are in the same part: pairs whose sources or whose targets have the same key, or keys that become
// the same when a word is left out of one that has at least five, or of both; and the two forms of a plural message. So are pairs connected
// over others. A group goes by the hash of its first key, but one of more than 20 pairs always to train.
std::vector<Part> split_parts(const std::vector<SplitPair>& pairs, double held_out);

}  // namespace hinge::text
