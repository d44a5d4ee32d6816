// Finding, taking out and putting back the marks.
#include "text/hot_keys.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace hinge::text {
namespace {

bool is_key(char32_t c) { return is_letter(c) || is_digit(c); }

constexpr auto kMostSpaces = 4;  // of a label of up to five words
bool is_short(std::string_view label) { return std::count(label.begin(), label.end(), ' ') <= kMostSpaces; }

struct Mark {
  size_t at = 0;
  bool starts_word = false;
  bool bracketed = false;      // "(_F)"
  std::string_view word = {};  // that holds the mark, between spaces
  std::string_view name = {};  // the letters, digits and underscores around the mark, with it
};

bool begins_entity(std::string_view text, size_t ampersand) {
  size_t at = ampersand + 1;
  while (at < text.size() && ((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= 'A' && text[at] <= 'Z') || text[at] == '#' ||
                              (text[at] >= '0' && text[at] <= '9')))
    ++at;
  return at < text.size() && text[at] == ';' && at > ampersand + 1;
}

// The only mark of this kind in a text, if there is exactly one.
std::optional<Mark> find_mark(std::string_view text, char marker) {
  std::optional<Mark> found;
  char32_t before = ' ';
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(marker)) {
      size_t next = at;
      const char32_t after = at < text.size() ? next_code_point(text, next) : ' ';
      if (after == c) return {};                            // doubled: the sign itself, or an identifier
      const bool plain = before == '<' || before == '*' ||  // "%<_Atomic%>", "*_tz()"
                         (marker == '&' && (begins_entity(text, start) || (is_capital(before) && is_capital(after))));  // "&amp;", "AT&T"
      if (is_key(after) && !plain) {
        if (found) return {};
        found = {.at = start,
                 .starts_word = !is_key(before) && before != '.' && before != '-' && before != '/' && before != '`' && before != '\'',
                 .bracketed = before == '(' && next < text.size() && text[next] == ')'};
      }
    }
    before = c;
  }
  if (!found) return {};
  const size_t space_before = text.find_last_of(" \n\t", found->at), space_after = text.find_first_of(" \n\t", found->at);
  const size_t begin = space_before == std::string_view::npos ? 0 : space_before + 1;
  found->word = text.substr(begin, (space_after == std::string_view::npos ? text.size() : space_after) - begin);
  size_t first = begin, last = found->at + 1;
  for (size_t at = begin; at < found->at;)
    if (const char32_t c = next_code_point(text, at); !is_key(c) && c != '_') first = at;
  for (size_t at = last; at < begin + found->word.size(); last = at)
    if (const char32_t c = next_code_point(text, at); !is_key(c) && c != '_') break;
  found->name = text.substr(first, last - first);
  return found;
}

// Whether a word that holds a mark is one of a language, not a name that programmers gave: letters and hyphens, maybe with a colon, dots or
// the like behind them ("Se_ttings…").
bool is_plain_word(std::string_view word, char marker) {
  std::u32string points = to_code_points(word);
  points.resize(points.find_last_not_of(U".…:,;!?") + 1);
  const auto others = std::count_if(points.begin(), points.end(), [](char32_t c) { return !is_letter(c) && c != '-'; });
  return others == 1 && points.find(static_cast<char32_t>(marker)) != std::u32string::npos;
}

// Whether the first letter or digit is a small letter.
bool begins_small(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (const char32_t c = next_code_point(text, at); is_key(c)) return upper_case(c) != c;
  return false;
}

std::string without(std::string_view text, const Mark& mark) {
  size_t begin = mark.at, end = mark.at + 1;
  if (mark.bracketed) {
    --begin;
    next_code_point(text, end);
    ++end;
    if (begin > 0 && text[begin - 1] == ' ') --begin;
  }
  return std::string(text.substr(0, begin)) + std::string(text.substr(end));
}

}  // namespace

HotKey take_hot_key(std::string_view label, const FormatSyntax& format) {
  for (const char marker : {'_', '&'}) {
    const std::optional<Mark> mark = find_mark(label, marker);
    if (!mark) continue;
    if (!mark->starts_word && (!is_short(label) || !is_plain_word(mark->word, marker))) continue;
    if (!mark->bracketed && (begins_small(label.substr(0, mark->at)) || (format.percent && begins_small(mark->name)))) continue;
    std::string bare = without(label, *mark);
    if (!same_format_codes(label, bare, format)) continue;  // part of a code
    size_t at = mark->at + 1;
    const char32_t key = lower_case(next_code_point(label, at));
    return {std::move(bare), marker, key};
  }
  return {std::string(label)};
}

std::string put_hot_key(std::string_view label, char marker, char32_t key, const FormatSyntax& format) {
  const std::vector<FormatCode> codes = find_format_codes(label, format);
  std::optional<size_t> first_of_word, first, any;
  char32_t before = ' ';
  auto code = codes.begin();
  for (size_t at = 0; at < label.size();) {
    if (code != codes.end() && at >= code->begin) {
      at = std::max(at, code->end);
      before = static_cast<unsigned char>(label[at - 1]);  // codes end in ASCII
      ++code;
      continue;
    }
    const size_t start = at;
    const char32_t c = next_code_point(label, at);
    if (lower_case(c) == key) {
      if (!first) first = start;
      if (!first_of_word && !is_key(before)) first_of_word = start;
    }
    if (!any && is_key(c)) any = start;
    before = c;
  }
  const std::optional<size_t> place = first_of_word ? first_of_word : first ? first : any;
  if (marker == 0 || !place) return std::string(label);
  return std::string(label.substr(0, *place)) + marker + std::string(label.substr(*place));
}

void remove_hot_keys(std::string& source, std::string& target) {
  for (const char marker : {'_', '&'}) {
    const std::optional<Mark> from = find_mark(source, marker), to = find_mark(target, marker);
    const bool same = from && to && from->name == to->name && !from->bracketed, both = from && to && !same;
    if (same && (!is_short(source) || begins_small(from->name))) continue;
    std::string bare_source = source, bare_target = target;
    if (from && (from->starts_word || both)) bare_source = without(source, *from);
    if (to && (to->starts_word || both)) bare_target = without(target, *to);
    source = std::move(bare_source);
    target = std::move(bare_target);
  }
}

}  // namespace hinge::text
