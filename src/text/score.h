// BLEU and chrF of translations against one reference each, equal to sacreBLEU's: the same tokens, the same counts, the same arithmetic in
// the same order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hinge::text {

constexpr int kBleuOrder = 4;

struct BleuOptions {
  bool lowercase = false;
};

struct Bleu {
  double score = 0;  // 0 to 100
  std::array<int64_t, kBleuOrder> matches{}, totals{};
  std::array<double, kBleuOrder> precisions{};  // percent, smoothed
  double brevity_penalty = 1;
  int64_t hypothesis_length = 0, reference_length = 0;

  // "68.9/43.2/30.1/21.6 (BP = 1.000 ratio = 1.010 hyp_len = 12097 ref_len = 11978)": sacreBLEU writes it behind the score.
  std::string details() const;
};

// BLEU of the corpus: mteval-v13a's tokens, smoothed as there, without effective order. Throws std::runtime_error unless both have the same
// number of sentences, at least one.
Bleu bleu(const std::vector<std::string_view>& hypotheses, const std::vector<std::string_view>& references,
          const BleuOptions& options = {});

struct ChrfOptions {
  int characters = 6, words = 0;  // longest n-grams; two words: chrF++
  int beta = 2;
  bool lowercase = false;
};

struct Chrf {
  double score = 0;  // 0 to 100
  ChrfOptions options;

  std::string name() const;  // "chrF2", "chrF2++"
};

Chrf chrf(const std::vector<std::string_view>& hypotheses, const std::vector<std::string_view>& references,
          const ChrfOptions& options = {});

// sacreBLEU's signatures, but for the version, which is Hinge's: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:hinge-0.2.0".
// With `documents`, "|unit:document" is before the version.
std::string signature(const BleuOptions& options, bool documents = false);
std::string signature(const ChrfOptions& options, bool documents = false);

// Sentences joined into documents by a space, for document BLEU. A reference line that is blank ends a document; the line of the hypothesis
// there must be blank too (elsewhere a blank hypothesis is an empty translation), else std::runtime_error with the number of the line.
struct Documents {
  std::vector<std::string> hypotheses, references;
};
Documents join_documents(const std::vector<std::string_view>& hypotheses, const std::vector<std::string_view>& references);

// The tokens of mteval-v13a.
std::vector<std::string> tokenize_13a(std::string_view line);

}  // namespace hinge::text
