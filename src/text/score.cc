// BLEU after Papineni et al. (2002) with the tokens of mteval-v13a, chrF after Popovic (2015). Tests compare both with the sacrebleu
// package.
#include "text/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <unordered_map>

#include "text/unicode.h"

namespace hinge::text {
namespace {

bool is_digit_byte(char c) { return c >= '0' && c <= '9'; }
bool is_point_or_comma(char c) { return c == '.' || c == ','; }

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

// ASCII signs that always stand alone: all but the apostrophe, comma, hyphen and point.
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || (c >= ':' && c <= '@') ||
         c == '/';
}

// A point or comma that does not follow a digit gets spaces around it. Both characters of a match are used up, so that of several in a row
// the next may stand first in a match, not second: as in the substitutions of mteval. Bytes will do for characters here, as the other
// character is only copied.
std::string space_after_nondigit(const std::string& text) {
  std::string spaced;
  for (size_t i = 0; i < text.size(); ++i) {
    spaced += text[i];
    if (!is_digit_byte(text[i]) && i + 1 < text.size() && is_point_or_comma(text[i + 1])) {
      spaced += {' ', text[i + 1], ' '};
      ++i;
    }
  }
  return spaced;
}

// The same for one that is not followed by a digit.
std::string space_before_nondigit(const std::string& text) {
  std::string spaced;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_point_or_comma(text[i]) && i + 1 < text.size() && !is_digit_byte(text[i + 1])) {
      spaced += {' ', text[i], ' ', text[i + 1]};
      ++i;
    } else {
      spaced += text[i];
    }
  }
  return spaced;
}

// A hyphen that follows a digit.
std::string space_hyphens(const std::string& text) {
  std::string spaced;
  for (size_t i = 0; i < text.size(); ++i) {
    spaced += text[i];
    if (is_digit_byte(text[i]) && i + 1 < text.size() && text[i + 1] == '-') {
      spaced += " - ";
      ++i;
    }
  }
  return spaced;
}

std::vector<std::string> split_at_spaces(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const bool space = is_space(next_code_point(text, at));
    if (!space && !inside) words.emplace_back();
    if (!space) words.back() += text.substr(start, at - start);
    inside = !space;
  }
  return words;
}

// Words as numbers, the same word as the same number.
class Numbers {
 public:
  std::vector<char32_t> of(const std::vector<std::string>& words) {
    std::vector<char32_t> numbers;
    for (const std::string& word : words) numbers.push_back(known_.try_emplace(word, static_cast<char32_t>(known_.size())).first->second);
    return numbers;
  }

 private:
  std::unordered_map<std::string, char32_t> known_;
};

// How many n-grams a sequence has, and how many of them the other has too, each counted at most as often as it is there.
int64_t ngrams(std::span<const char32_t> sequence, int n) { return std::max<int64_t>(0, static_cast<int64_t>(sequence.size()) - n + 1); }

int64_t matching_ngrams(std::span<const char32_t> left, std::span<const char32_t> right, int n) {
  const auto length = static_cast<size_t>(n);
  const auto less = [&](const char32_t* a, const char32_t* b) { return std::lexicographical_compare(a, a + length, b, b + length); };
  const auto sorted = [&](std::span<const char32_t> sequence) {
    std::vector<const char32_t*> all;
    for (int64_t i = 0; i < ngrams(sequence, n); ++i) all.push_back(sequence.data() + i);
    std::sort(all.begin(), all.end(), less);
    return all;
  };
  const std::vector<const char32_t*> a = sorted(left), b = sorted(right);
  int64_t matches = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (less(a[i], b[j])) {
      ++i;
    } else if (less(b[j], a[i])) {
      ++j;
    } else {
      ++matches, ++i, ++j;
    }
  }
  return matches;
}

std::string_view strip_end(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();)
    if (!is_space(next_code_point(text, at))) end = at;
  return text.substr(0, end);
}

void require_equal_counts(size_t hypotheses, size_t references) {
  if (hypotheses != references)
    throw std::runtime_error(
        fmt::format("score: {} hypotheses and {} references; give one reference for each hypothesis", hypotheses, references));
  if (hypotheses == 0) throw std::runtime_error("score: there are no sentences");
}

// chrF's words: one sign of punctuation at the end or else at the beginning is a word of its own.
std::vector<std::string> chrf_words(std::string_view text) {
  constexpr std::string_view kSigns = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  const auto is_sign = [&](char c) { return kSigns.find(c) != std::string_view::npos; };
  std::vector<std::string> words;
  for (const std::string& word : split_at_spaces(text)) {
    if (count_code_points(word) > 1 && is_sign(word.back())) {
      words.push_back(word.substr(0, word.size() - 1));
      words.emplace_back(1, word.back());
    } else if (count_code_points(word) > 1 && is_sign(word.front())) {
      words.emplace_back(1, word.front());
      words.push_back(word.substr(1));
    } else {
      words.push_back(word);
    }
  }
  return words;
}

std::vector<char32_t> chrf_characters(std::string_view text) {
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();)
    if (const char32_t c = next_code_point(text, at); !is_space(c)) characters.push_back(c);
  return characters;
}

// Counts of one order of n-grams.
struct Overlap {
  int64_t hypothesis = 0, reference = 0, matches = 0;

  void add(std::span<const char32_t> hyp, std::span<const char32_t> ref, int n) {
    const int64_t in_reference = ngrams(ref, n);
    if (in_reference == 0) return;  // where the reference has none, those of the hypothesis do not count
    hypothesis += ngrams(hyp, n);
    reference += in_reference;
    matches += matching_ngrams(hyp, ref, n);
  }
};

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text) {
    if (stands_alone(c))
      spaced += {' ', c, ' '};
    else
      spaced += c;
  }
  spaced += ' ';
  return split_at_spaces(space_hyphens(space_before_nondigit(space_after_nondigit(spaced))));
}

Bleu bleu(const std::vector<std::string_view>& hypotheses, const std::vector<std::string_view>& references, const BleuOptions& options) {
  require_equal_counts(hypotheses.size(), references.size());
  Bleu result;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    Numbers numbers;
    const auto words = [&](std::string_view text) {
      return numbers.of(options.lowercase ? tokenize_13a(strip_end(lower_case(text))) : tokenize_13a(strip_end(text)));
    };
    const std::vector<char32_t> hypothesis = words(hypotheses[i]), reference = words(references[i]);
    result.hypothesis_length += static_cast<int64_t>(hypothesis.size());
    result.reference_length += static_cast<int64_t>(reference.size());
    for (int n = 1; n <= kBleuOrder; ++n) {
      result.totals[static_cast<size_t>(n - 1)] += ngrams(hypothesis, n);
      result.matches[static_cast<size_t>(n - 1)] += matching_ngrams(hypothesis, reference, n);
    }
  }

  const auto hypothesis_length = static_cast<double>(result.hypothesis_length),
             reference_length = static_cast<double>(result.reference_length);
  if (result.hypothesis_length < result.reference_length)
    result.brevity_penalty = result.hypothesis_length > 0 ? std::exp(1 - reference_length / hypothesis_length) : 0;
  if (std::all_of(result.matches.begin(), result.matches.end(), [](int64_t m) { return m == 0; })) return result;

  // An order without a match counts as half of the one before it would: 1/2, 1/4 ... of a match.
  double smooth = 1;
  for (size_t n = 0; n < kBleuOrder && result.totals[n] > 0; ++n) {
    const auto total = static_cast<double>(result.totals[n]);
    if (result.matches[n] == 0) {
      smooth *= 2;
      result.precisions[n] = 100. / (smooth * total);
    } else {
      result.precisions[n] = 100. * static_cast<double>(result.matches[n]) / total;
    }
  }
  double sum = 0;
  for (const double precision : result.precisions) sum += precision == 0 ? -9999999999. : std::log(precision);
  result.score = result.brevity_penalty * std::exp(sum / kBleuOrder);
  return result;
}

std::string Bleu::details() const {
  const double ratio = reference_length > 0 ? static_cast<double>(hypothesis_length) / static_cast<double>(reference_length) : 0;
  return fmt::format("{:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})", precisions[0], precisions[1],
                     precisions[2], precisions[3], brevity_penalty, ratio, hypothesis_length, reference_length);
}

Chrf chrf(const std::vector<std::string_view>& hypotheses, const std::vector<std::string_view>& references, const ChrfOptions& options) {
  require_equal_counts(hypotheses.size(), references.size());
  if (options.characters < 1 || options.words < 0 || options.beta < 1)
    throw std::runtime_error(fmt::format("score: chrF of {} characters, {} words and beta {}: at least 1, 0 and 1 are needed",
                                         options.characters, options.words, options.beta));
  std::vector<Overlap> orders(static_cast<size_t>(options.characters + options.words));
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::string hypothesis = options.lowercase ? lower_case(hypotheses[i]) : std::string(hypotheses[i]);
    const std::string reference = options.lowercase ? lower_case(references[i]) : std::string(references[i]);
    const std::vector<char32_t> hyp = chrf_characters(hypothesis), ref = chrf_characters(reference);
    for (int n = 1; n <= options.characters; ++n) orders[static_cast<size_t>(n - 1)].add(hyp, ref, n);
    if (options.words == 0) continue;
    Numbers numbers;
    const std::vector<char32_t> hyp_words = numbers.of(chrf_words(hypothesis)), ref_words = numbers.of(chrf_words(reference));
    for (int n = 1; n <= options.words; ++n) orders[static_cast<size_t>(options.characters + n - 1)].add(hyp_words, ref_words, n);
  }

  double precision = 0, recall = 0;
  int used = 0;  // orders that both have n-grams of
  for (const Overlap& order : orders) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    precision += static_cast<double>(order.matches) / static_cast<double>(order.hypothesis);
    recall += static_cast<double>(order.matches) / static_cast<double>(order.reference);
    ++used;
  }
  Chrf result{0, options};
  if (used == 0) return result;
  precision /= used;
  recall /= used;
  const double factor = options.beta * options.beta;
  if (precision + recall > 0) {
    double score = (1 + factor) * precision * recall;
    score /= factor * precision + recall;
    result.score = 100 * score;
  }
  return result;
}

std::string Chrf::name() const { return fmt::format("chrF{}{}", options.beta, std::string(static_cast<size_t>(options.words), '+')); }

std::string signature(const BleuOptions& options, bool documents) {
  return fmt::format("nrefs:1|case:{}|eff:no|tok:13a|smooth:exp{}|version:hinge-{}", options.lowercase ? "lc" : "mixed",
                     documents ? "|unit:document" : "", HINGE_VERSION);
}

std::string signature(const ChrfOptions& options, bool documents) {
  return fmt::format("nrefs:1|case:{}|eff:yes|nc:{}|nw:{}|space:no{}|version:hinge-{}", options.lowercase ? "lc" : "mixed",
                     options.characters, options.words, documents ? "|unit:document" : "", HINGE_VERSION);
}

Documents join_documents(const std::vector<std::string_view>& hypotheses, const std::vector<std::string_view>& references) {
  require_equal_counts(hypotheses.size(), references.size());
  Documents documents;
  bool open = false;
  for (size_t i = 0; i < references.size(); ++i) {
    const std::string_view hypothesis = strip(hypotheses[i]), reference = strip(references[i]);
    if (reference.empty()) {
      if (!hypothesis.empty())
        throw std::runtime_error(
            fmt::format("score: in line {} a document of the references ends (the line is blank), but the hypotheses have "
                        "text there; keep blank lines where they are",
                        i + 1));
      open = false;
      continue;
    }
    if (!open) {
      documents.hypotheses.emplace_back();
      documents.references.emplace_back();
      open = true;
    }
    const auto join = [](std::string& to, std::string_view more) {
      if (!to.empty() && !more.empty()) to += ' ';
      to += more;
    };
    join(documents.hypotheses.back(), hypothesis);
    join(documents.references.back(), reference);
  }
  if (documents.references.empty()) throw std::runtime_error("score: all references are blank");
  return documents;
}

}  // namespace hinge::text
