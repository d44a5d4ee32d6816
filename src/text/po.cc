// A line-by-line parser that remembers where everything is, and a writer that changes only those places.
#include "text/po.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "support/utf8.h"
#include "text/error.h"
#include "text/files.h"
#include "text/format_codes.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::string_view kEscapes = "ntrabfv\\\"", kEscaped = "\n\t\r\a\b\f\v\\\"";

// Between quotation marks.
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      plain += text[i];
      continue;
    }
    const char c = text[++i];
    if (const size_t known = kEscapes.find(c); known != std::string_view::npos) {
      plain += kEscaped[known];
    } else if (c >= '0' && c <= '7') {
      int value = 0;
      for (int digits = 0; digits < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++digits)
        value = value * 8 + (text[i++] - '0');
      --i;
      plain += static_cast<char>(value);
    } else if (c == 'x' && i + 1 < text.size() && hex_value(text[i + 1]) >= 0) {
      uint8_t value = 0;  // of many digits the last two count
      for (++i; i < text.size() && hex_value(text[i]) >= 0; ++i) value = static_cast<uint8_t>(value * 16 + hex_value(text[i]));
      --i;
      plain += static_cast<char>(value);
    } else {
      plain += {'\\', c};
    }
  }
  return plain;
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (const size_t known = kEscaped.find(c); known != std::string_view::npos)
      quoted += {'\\', kEscapes[known]};
    else
      quoted += c;
  }
  return quoted + '"';
}

// One string, or as many as there are lines, below an empty one: as gettext's own tools write them.
std::string quote_lines(std::string_view text, const std::string& line_end) {
  const size_t first = text.find('\n');
  if (first == std::string_view::npos || first + 1 == text.size()) return quote(text);
  std::string quoted = "\"\"";
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t length = end == std::string_view::npos ? text.size() : end + 1;
    quoted += line_end + quote(text.substr(0, length));
    text.remove_prefix(length);
  }
  return quoted;
}

std::vector<std::string> split_flags(std::string_view text) {
  std::vector<std::string> flags;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (const std::string_view flag = strip(text.substr(0, comma)); !flag.empty()) flags.emplace_back(flag);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return flags;
}

bool has_small_letter(std::u32string_view text) {
  return std::any_of(text.begin(), text.end(), [](char32_t c) { return upper_case(c) != c; });
}

// "Verb|Open" is "Open": before there was msgctxt, programs put a context in front of a message (glib's Q_() cuts it off where there is no
// translation). Other messages have bars too, which mostly stand between alternatives, as in "[-a|-b]", "start|stop", "FILE|DIR" or
// "one | two". So it is a context only if the bar is the only one, may_be_context() is true of what is before it, and what is behind it
// begins as a label does, with a capital letter, maybe marked as a hot key, and is not all in capitals.
std::string without_context(const std::string& id) {
  const size_t bar = id.find('|');
  if (bar == std::string::npos || id.find('|', bar + 1) != std::string::npos) return id;
  const std::u32string behind = to_code_points(std::string_view(id).substr(bar + 1));
  const size_t first = behind.starts_with(U'_') || behind.starts_with(U'&') ? 1 : 0;
  const bool label = behind.size() > first && is_capital(behind[first]) && has_small_letter(behind);
  return label && may_be_context(std::string_view(id).substr(0, bar)) ? id.substr(bar + 1) : id;
}

}  // namespace

bool names_translators(const std::string& id, const std::string& context) {
  static const std::set<std::string> ids = {"translator-credits", "translator_credits"};
  static const std::set<std::string> kde = {"NAME OF TRANSLATORS", "EMAIL OF TRANSLATORS"};  // contexts of "Your names" and "Your emails"
  return ids.contains(id) || kde.contains(context) || kde.contains(id);
}

bool may_be_context(std::string_view text) {
  constexpr auto kMostGaps = 4;
  const std::u32string points = to_code_points(text);
  const auto allowed = [](char32_t c) { return is_letter(c) || is_digit(c) || c == ' ' || c == '-' || c == '_' || c == ':'; };
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  const bool words = !points.empty() && is_letter(points.front()) && std::all_of(points.begin(), points.end(), allowed);
  const bool sentence = has(": ") || has(" -") || has("  ") || text.ends_with(':') || text.ends_with(' ');
  return words && !sentence && std::count(text.begin(), text.end(), ' ') <= kMostGaps && has_small_letter(points);
}

bool PoEntry::has_flag(std::string_view flag) const { return std::find(flags.begin(), flags.end(), flag) != flags.end(); }

FormatSyntax PoEntry::format() const {
  // Languages whose format strings msgfmt takes apart, so that a stray percent sign is an error.
  static const std::set<std::string> percent = {"c-format",    "objc-format",       "python-format",        "perl-format",
                                                "php-format",  "awk-format",        "gcc-internal-format",  "gfc-internal-format",
                                                "lua-format",  "tcl-format",        "object-pascal-format", "javascript-format",
                                                "ruby-format", "elisp-format",      "librep-format",        "boost-format",
                                                "ycp-format",  "java-printf-format"};
  return {.percent = std::any_of(flags.begin(), flags.end(), [](const std::string& flag) { return percent.contains(flag); }),
          .numbered = !has_flag("python-format") && !has_flag("lua-format") && !has_flag("object-pascal-format"),
          .spaced_names = has_flag("python-format"),
          .qt = has_flag("qt-format") || has_flag("qt-plural-format") || has_flag("kde-format"),
          .commas = has_flag("java-format") || has_flag("csharp-format"),
          .quotes = has_flag("java-format"),
          .shell = has_flag("sh-format"),
          .ruby = has_flag("ruby-format"),
          .boost = has_flag("boost-format"),
          .tildes = has_flag("lisp-format") || has_flag("scheme-format")};
}

struct PoFile::Parsed {
  PoEntry entry;
  Places places;
  bool has_id = false;
  std::vector<std::string> forms;
};

PoFile::PoFile(std::string text, const std::string& name) : text_(std::move(text)), name_(name) {
  if (const size_t end = text_.find('\n'); end != std::string::npos && end > 0 && text_[end - 1] == '\r') line_end_ = "\r\n";
  if (text_.find('\n') == std::string::npos && text_.find('\r') != std::string::npos)
    throw TextError(name_, 0, "has line ends of a single CR, which gettext's tools do not read either; convert them: tr '\\r' '\\n'");
  std::vector<Parsed> parsed = parse();
  for (const Parsed& one : parsed)
    if (one.entry.id.empty() && one.entry.context.empty()) read_header(one);
  require_utf8(split_lines(text_), name_);
  for (Parsed& one : parsed) {
    if (one.entry.id.empty()) continue;
    ++messages_;
    if (one.forms.empty()) throw TextError(name_, one.places.line, "has a msgid, but no msgstr follows it; check the file with msgfmt -c");
    const auto empty = std::count(one.forms.begin(), one.forms.end(), "");
    if (empty > 0 && empty < std::ssize(one.forms)) ++partly_translated_;
    if (empty < std::ssize(one.forms)) continue;
    for (const std::string* text : {&one.entry.context, &one.entry.id, &one.entry.plural})
      if (support::find_invalid_utf8(*text))
        throw TextError(name_, one.places.line, "has a message that is not UTF-8 because of its escapes; write the characters themselves");
    one.entry.line = one.places.line;
    one.entry.sources = sources(one.entry, one.forms.size());
    entries_.push_back(std::move(one.entry));
    places_.push_back(std::move(one.places));
  }
  fillings_.resize(entries_.size());
}

std::vector<PoFile::Parsed> PoFile::parse() const {
  std::vector<Parsed> all;
  Parsed current;
  std::optional<size_t> previous;  // the first "#|" line: flags stand above it
  std::string* open = nullptr;     // the string that a line in quotation marks goes on
  bool open_is_form = false;
  const auto finish = [&] {
    for (const Span& form : current.places.forms)
      if (form.end == 0)
        throw TextError(name_, current.places.line, "is an entry with a msgstr without a string; check the file with msgfmt -c");
    if (current.has_id) all.push_back(std::move(current));
    current = {};
    previous = {};
    open = nullptr;
  };

  size_t begin = has_byte_order_mark() ? kByteOrderMark.size() : 0;
  for (int64_t number = 1; begin < text_.size(); ++number) {
    const size_t end = std::min(text_.find('\n', begin), text_.size()), next = std::min(end + 1, text_.size());
    size_t at = begin;
    const auto skip_spaces = [&] {
      while (at < end && (text_[at] == ' ' || text_[at] == '\t' || text_[at] == '\r')) ++at;
    };
    const auto rest = [&] { return std::string_view(text_).substr(at, end - at); };
    const auto fail = [&](const std::string& problem) { throw TextError(name_, number, problem); };
    // Strings in quotation marks up to the end of the line.
    const auto strings = [&] {
      for (skip_spaces(); at < end; skip_spaces()) {
        if (text_[at] != '"') fail("has something other than a string in quotation marks; check the file with msgfmt -c");
        size_t close = at + 1;
        while (close < end && text_[close] != '"') close += text_[close] == '\\' ? 2 : 1;
        if (close >= end) fail("has no closing quotation mark; check the file with msgfmt -c");
        *open += unescape(std::string_view(text_).substr(at + 1, close - at - 1));
        if (open_is_form) {
          Span& span = current.places.forms.back();
          if (span.end == 0) span.begin = at;
          span.end = close + 1;
        }
        at = close + 1;
      }
    };
    const auto keyword = [&](std::string_view word) {
      if (!rest().starts_with(word)) return false;
      const std::string_view after = rest().substr(word.size());
      if (!after.empty() && std::string_view("\" \t\r").find(after[0]) == std::string_view::npos) return false;
      at += word.size();
      return true;
    };

    skip_spaces();
    if (at == end) {
      // blank lines are allowed everywhere
    } else if (text_[at] == '#') {
      if (current.has_id) finish();
      if (rest().starts_with("#~")) {
        finish();
      } else if (rest().starts_with("#,")) {
        if (!current.places.flags) current.places.flags = at + 2;
        for (std::string& flag : split_flags(rest().substr(2))) current.entry.flags.push_back(std::move(flag));
      } else if (rest().starts_with("#|") && !previous) {
        previous = begin;
      }
    } else if (text_[at] == '"') {
      if (open == nullptr) fail("is a string, but no msgid or msgstr is before it; check the file with msgfmt -c");
      strings();
    } else if (keyword("msgctxt")) {
      if (current.has_id) finish();
      current.places.new_flags = previous.value_or(begin);
      open = &current.entry.context;
      open_is_form = false;
      strings();
    } else if (keyword("msgid")) {
      if (current.has_id) finish();
      current.has_id = true;
      current.places.line = number;
      if (!current.places.new_flags) current.places.new_flags = previous.value_or(begin);
      open = &current.entry.id;
      open_is_form = false;
      strings();
    } else if (keyword("msgid_plural")) {
      open = &current.entry.plural;
      open_is_form = false;
      strings();
    } else if (rest().starts_with("msgstr")) {
      at += 6;
      if (!current.has_id) fail("has a msgstr without a msgid; check the file with msgfmt -c");
      if (at < end && text_[at] == '[') {
        const size_t close = text_.find(']', at);
        if (close >= end || text_.substr(at + 1, close - at - 1) != std::to_string(current.forms.size()))
          fail(fmt::format("should have msgstr[{}]: the forms of a message are counted up from 0", current.forms.size()));
        at = close + 1;
      }
      current.forms.emplace_back();
      current.places.forms.emplace_back();
      open = &current.forms.back();
      open_is_form = true;
      strings();
    } else if (keyword("domain")) {
      finish();
    } else {
      fail("is not understood: it is no comment, keyword or string of a .po file");
    }
    begin = next;
  }
  finish();
  return all;
}

void PoFile::read_header(const Parsed& header) {
  if (header.forms.empty()) return;
  const std::string& fields = header.forms.front();
  language_ = header_field(fields, "Language");
  const std::string type = header_field(fields, "Content-Type");
  if (const size_t at = type.find("charset="); at != std::string::npos) {
    const std::string charset(strip(type.substr(at + 8))), lower = lower_case(std::string_view(charset));
    names_charset_ = lower == "utf-8" || lower == "utf8";
    if (!names_charset_ && lower != "charset")  // "charset" stands in templates
      throw TextError(name_, header.places.line,
                      fmt::format("is the header of a file in {}; convert it: msgconv --to-code=UTF-8", charset));
  }
  try {
    plurals_ = PluralForms(header_field(fields, "Plural-Forms"));
  } catch (const std::runtime_error&) {
    // a template's "nplurals=INTEGER": the rule of English stays
  }
}

// A form is translated from the text for one thing if it is the form of 1. But where it serves other numbers too (21 in Russian), the text
// for one thing must have its number in it; and a language with a single form is better served by the text for many.
std::vector<std::string> PoFile::sources(const PoEntry& entry, size_t forms) const {
  if (entry.plural.empty()) return std::vector<std::string>(forms, entry.context.empty() ? without_context(entry.id) : entry.id);
  std::vector<std::string> texts;
  const size_t one = plurals_.form(1);
  const bool as_good = plurals_.singular_is_one() || same_format_codes(entry.id, entry.plural, entry.format());
  const bool of_one = forms > 1 && as_good && plurals_.form(5) != one;  // the form of 1 is translated from the text for one thing
  for (size_t i = 0; i < forms; ++i) texts.push_back(of_one && i == one ? entry.id : entry.plural);
  return texts;
}

PoFilled PoFile::fill(size_t i, const std::vector<std::string>& translations) {
  const PoEntry& entry = entries_.at(i);
  if (translations.size() != entry.sources.size())
    throw TextError(name_, entry.line,
                    fmt::format("has {} forms to translate, {} translations were given", entry.sources.size(), translations.size()));
  std::vector<std::string> filling;
  fillings_[i] = {};
  for (size_t form = 0; form < translations.size(); ++form) {
    const std::string& source = entry.sources[form];
    if (strip(source).empty()) {
      filling.push_back(source);
      continue;
    }
    if (strip(translations[form]).empty()) return PoFilled::empty;
    if (!same_format_codes(source, translations[form], entry.format())) return PoFilled::format_codes_differ;
    filling.push_back(with_ends_of(source, translations[form]));
  }
  fillings_[i] = std::move(filling);
  return PoFilled::filled;
}

bool PoFile::has_byte_order_mark() const { return text_.starts_with(kByteOrderMark); }

// What is put in the place of a part of the text.
struct PoFile::Change {
  Span place;
  std::string by;
};

// From the front to the back.
std::vector<PoFile::Change> PoFile::changes() const {
  std::vector<Change> all;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::vector<std::string>& filling = fillings_[i];
    const Places& places = places_[i];
    if (filling.empty()) continue;
    if (!entries_[i].has_flag("fuzzy")) {
      const size_t at = places.flags ? *places.flags : places.new_flags.value();
      all.push_back({{at, at}, !places.flags ? "#, fuzzy" + line_end_ : entries_[i].flags.empty() ? " fuzzy" : " fuzzy,"});
    }
    for (size_t form = 0; form < filling.size(); ++form) all.push_back({places.forms[form], quote_lines(filling[form], line_end_)});
  }
  return all;
}

std::string PoFile::text() const {
  std::string filled;
  size_t copied = 0;
  for (const Change& change : changes()) {
    filled += text_.substr(copied, change.place.begin - copied);
    filled += change.by;
    copied = change.place.end;
  }
  return filled + text_.substr(copied);
}

std::vector<int64_t> PoFile::lines() const {
  const std::vector<Change> all = changes();
  std::vector<int64_t> numbers;
  int64_t added = 0;
  size_t next = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (; next < all.size() && all[next].place.begin < places_[i].forms.front().begin; ++next) {
      const auto [begin, end] = all[next].place;
      added += std::count(all[next].by.begin(), all[next].by.end(), '\n');
      added -= std::count(text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    }
    numbers.push_back(entries_[i].line + added);
  }
  return numbers;
}

std::string with_ends_of(std::string_view source, std::string_view translation) {
  const std::string_view inner = strip(source);
  const auto begin = static_cast<size_t>(inner.data() - source.data());
  return std::string(source.substr(0, begin)) + std::string(strip(translation)) + std::string(source.substr(begin + inner.size()));
}

std::string language_of(std::string_view locale) { return lower_case(locale.substr(0, locale.find_first_of("_-@."))); }

LocaleVariant variant_of(std::string_view locale) {
  LocaleVariant found;
  const std::string_view head = locale.substr(0, locale.find_first_of(".@"));
  const size_t country = head.find_first_of("_-"), variant = locale.find('@');
  if (country != std::string_view::npos) found.country = lower_case(head.substr(country + 1));
  if (variant != std::string_view::npos) found.variant = lower_case(locale.substr(variant + 1));
  return found;
}

}  // namespace hinge::text
