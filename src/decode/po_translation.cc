#include "decode/po_translation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "text/format_codes.h"
#include "text/hot_keys.h"
#include "text/unicode.h"

namespace hinge::decode {
namespace {

constexpr std::string_view kSpaces = " \t\r";
constexpr size_t kWrapWidth = 60;  // a line that has no room for one more word within it was ended because it is full

// "- ", "* ", "• " begin an item of a list.
bool begins_item(std::string_view line) { return line.starts_with("- ") || line.starts_with("* ") || line.starts_with("\xE2\x80\xA2 "); }

// Whether a line was wrapped, so that `next` goes on with it: it is full, or `next` goes on in the middle of a sentence.
bool goes_on_with(std::string_view line, std::string_view next) {
  const size_t word = text::count_code_points(next.substr(0, next.find(' ')));
  if (text::count_code_points(line) + 1 + word > kWrapWidth) return true;
  const char32_t first = text::to_code_points(next).front();
  return text::is_letter(first) && !text::is_capital(first) && std::string_view(".:!?").find(line.back()) == std::string_view::npos;
}

struct Gap {
  size_t begin, end;
};

// The first place from `from` on where a line is divided: a tab, or several spaces, but not those that some put between sentences.
Gap find_gap(std::string_view line, size_t from) {
  for (size_t begin = line.find_first_of(" \t", from); begin != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_not_of(" \t", begin), line.size());
    const bool tab = line.substr(begin, end - begin).find('\t') != std::string_view::npos;
    const bool between_sentences = begin > 0 && std::string_view(".!?").find(line[begin - 1]) != std::string_view::npos && end - begin <= 3;
    if (tab || (end - begin > 1 && !between_sentences)) return {begin, end};
    begin = line.find_first_of(" \t", end);
  }
  return {line.size(), line.size()};
}

// "-a, --all", in front of what it means.
bool is_option(std::string_view text) { return text.size() > 1 && text[0] == '-' && text[1] != ' '; }

// "Ctrl+O", "F5", "Del"
bool is_shortcut(std::string_view text) {
  static constexpr std::string_view keys[] = {"Del",   "Delete", "Ins",  "Insert", "Esc",  "Escape", "Enter",    "Return",   "Tab",
                                              "Space", "PgUp",   "PgDn", "PageUp", "Home", "End",    "PageDown", "Backspace"};
  if (std::find(std::begin(keys), std::end(keys), text) != std::end(keys)) return true;
  if (text.find(' ') != std::string_view::npos) return false;
  if (text.size() > 1 && text[0] == 'F') return text.find_first_not_of("0123456789", 1) == std::string_view::npos;
  const auto begins = [&](std::string_view key) {
    return text.starts_with(key) && text.size() > key.size() && (text[key.size()] == '+' || text[key.size()] == '-');
  };
  return begins("Ctrl") || begins("Alt") || begins("Shift") || begins("Cmd") || begins("Meta") || begins("Super");
}

// Puts line ends in the place of spaces, so that lines have at most `width` characters if their words let them.
std::string wrapped(const std::string& text, size_t width) {
  std::string lines;
  size_t length = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    const size_t more = text::count_code_points(word);
    if (begin > 0) {
      const bool fits = length + 1 + more <= width;
      lines += fits ? ' ' : '\n';
      length = fits ? length + 1 : 0;
    }
    lines += word;
    length += more;
    begin = end + 1;
  }
  return lines;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) text.replace(at, what.size(), by);
  return text;
}

bool has_control_code(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

// What is translated: every text once.
class TextList {
 public:
  size_t number_of(const std::string& text) {
    const auto [place, is_new] = numbers_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return place->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  std::map<std::string, size_t> numbers_;
};

// One form of an entry, taken apart.
struct Form {
  text::HotKey key;  // of a message of one part
  MessageParts parts;
  std::vector<std::optional<size_t>> numbers;  // of the parts in the list of texts; none: the part has no words and stays as it is
  bool doubles_apostrophes = false;            // as Java does in messages with codes

  std::string written(const std::string& text) const { return doubles_apostrophes ? replaced(text, "'", "''") : text; }
};

Form take_apart(const std::string& source, const text::FormatSyntax& format, TextList& list) {
  Form form;
  form.parts = split_message(source);
  if (form.parts.texts.size() == 1) {
    form.key = text::take_hot_key(form.parts.texts[0], format);
    form.parts.texts[0] = form.key.label;
  }
  if (std::none_of(form.parts.texts.begin(), form.parts.texts.end(), [&](const auto& text) { return text::has_words(text, format); })) {
    Form unchanged;  // also its hot key stays where it is
    unchanged.parts.before = {source};
    return unchanged;
  }
  form.doubles_apostrophes = format.quotes && !text::find_format_codes(source, format).empty();
  for (std::string& text : form.parts.texts) {
    form.numbers.emplace_back();
    if (!text::has_words(text, format)) continue;
    text = text::collapse_spaces(form.doubles_apostrophes ? replaced(text, "''", "'") : text);
    form.numbers.back() = list.number_of(text);
  }
  return form;
}

using TextTranslations = std::vector<std::vector<std::string>>;

// Of part's translations the first that has the codes of its source, else the first; "" if there is none.
std::string best_of(const std::vector<std::string>& translations, const Form& form, size_t part, const text::FormatSyntax& format) {
  const std::string source = form.written(form.parts.texts[part]);
  const auto right = [&](const std::string& one) {
    return !text::strip(one).empty() && text::same_format_codes(source, form.written(one), format);
  };
  const auto found = std::find_if(translations.begin(), translations.end(), right);
  return form.written(found != translations.end() ? *found : translations.empty() ? "" : translations[0]);
}

std::string with_hot_key(const std::string& label, const text::HotKey& key, const text::FormatSyntax& format) {
  if (key.marker == 0) return label;
  const std::string marked = text::put_hot_key(label, key.marker, key.key, format);
  return text::same_format_codes(label, marked, format) ? marked : label;  // with a mark, "$5" would be a variable of a shell
}

// "" if a part of it has no translation.
std::string put_together(const Form& form, const TextTranslations& translations, const text::FormatSyntax& format) {
  std::string whole;
  for (size_t part = 0; part < form.numbers.size(); ++part) {
    const std::optional<size_t> number = form.numbers[part];
    std::string chosen = number ? best_of(translations.at(*number), form, part, format) : form.parts.texts[part];
    if (text::strip(chosen).empty()) return "";
    chosen = with_hot_key(chosen, form.key, format);
    if (const size_t width = form.parts.widths[part]; width > 0) {
      const std::string lines = wrapped(chosen, width);
      if (text::same_format_codes(chosen, lines, format)) chosen = lines;  // a name within a code may have spaces
    }
    whole += form.parts.before[part] + chosen;
  }
  return whole + form.parts.before.back();
}

bool has_control_codes(const Form& form) { return std::any_of(form.parts.texts.begin(), form.parts.texts.end(), has_control_code); }

bool is_too_long(const Form& form, const TextTranslations& translations) {
  return std::any_of(form.numbers.begin(), form.numbers.end(),
                     [&](const std::optional<size_t>& number) { return number && translations.at(*number).empty(); });
}

}  // namespace

MessageParts split_message(const std::string& message) {
  MessageParts parts;
  std::string before;
  std::string_view previous;  // the line before this one, if it ended with a text
  for (size_t begin = 0; begin < message.size();) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    const std::string_view line = std::string_view(message).substr(begin, end - begin);
    const size_t first = line.find_first_not_of(kSpaces);
    if (first == std::string_view::npos) {
      before += line;
      previous = {};
    } else {
      const size_t last = line.find_last_not_of(kSpaces) + 1;
      const std::string_view text = line.substr(first, last - first);
      if (!previous.empty() && first == 0 && !begins_item(text) && find_gap(text, 0).begin == text.size() && goes_on_with(previous, text)) {
        const size_t width = std::max(text::count_code_points(previous), text::count_code_points(text));
        parts.texts.back() += ' ';
        parts.texts.back() += text;
        parts.widths.back() = std::max(parts.widths.back(), width);
        before.clear();  // the line end that has become a space
      } else {
        before += line.substr(0, first);
        bool behind_tab = false;
        for (size_t at = 0; at < text.size();) {
          const Gap gap = find_gap(text, at);
          const std::string_view piece = text.substr(at, gap.begin - at), space = text.substr(gap.begin, gap.end - gap.begin);
          if ((is_option(piece) && !space.empty()) || (behind_tab && is_shortcut(piece))) {
            before += piece;
          } else {
            parts.before.push_back(std::exchange(before, ""));
            parts.texts.emplace_back(piece);
            parts.widths.push_back(0);
          }
          before += space;
          behind_tab = space.find('\t') != std::string_view::npos;
          at = gap.end;
        }
      }
      previous = before.empty() ? line.substr(0, last) : std::string_view();
      before += line.substr(last);
    }
    if (end < message.size()) before += '\n';
    begin = end + 1;
  }
  parts.before.push_back(before);
  return parts;
}

PoReport fill_po(text::PoFile& file, const TranslateTexts& translate) {
  const std::vector<text::PoEntry>& entries = file.empty_entries();
  PoReport report;
  report.messages = file.messages();
  report.empty = static_cast<int64_t>(entries.size());

  TextList list;
  std::vector<std::vector<Form>> forms(entries.size());  // none: the entry is left alone
  for (size_t i = 0; i < entries.size(); ++i) {
    if (text::names_translators(entries[i].id, entries[i].context)) continue;
    for (const std::string& source : entries[i].sources) forms[i].push_back(take_apart(source, entries[i].format(), list));
  }
  const TextTranslations translations = translate(list.texts());

  for (size_t i = 0; i < entries.size(); ++i) {
    const auto entry = static_cast<int64_t>(i);
    if (forms[i].empty()) {
      report.names_translators.push_back(entry);
      continue;
    }
    if (std::any_of(forms[i].begin(), forms[i].end(), has_control_codes)) {
      report.control_codes.push_back(entry);
      continue;
    }
    if (std::any_of(forms[i].begin(), forms[i].end(), [&](const Form& form) { return is_too_long(form, translations); })) {
      report.too_long.push_back(entry);
      continue;
    }
    std::vector<std::string> filled;
    for (const Form& form : forms[i]) filled.push_back(put_together(form, translations, entries[i].format()));
    switch (file.fill(i, filled)) {
      case text::PoFilled::filled: ++report.filled; break;
      case text::PoFilled::format_codes_differ: report.format_codes_differ.push_back(entry); break;
      case text::PoFilled::empty: report.untranslated.push_back(entry); break;
    }
  }
  const std::vector<int64_t> lines = file.lines();
  for (std::vector<int64_t>* const numbers :
       {&report.format_codes_differ, &report.too_long, &report.untranslated, &report.names_translators, &report.control_codes})
    for (int64_t& number : *numbers) number = lines.at(static_cast<size_t>(number));
  return report;
}

}  // namespace hinge::decode
