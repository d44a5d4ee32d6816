#include "decode/po_translation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "text/format_codes.h"
#include "text/hot_keys.h"
#include "text/unicode.h"

namespace hinge::decode {
namespace {

constexpr std::string_view kSpaces = " \t\r";

// "- ", "* ", "• " begin an item of a list.
bool begins_item(std::string_view line) { return line.starts_with("- ") || line.starts_with("* ") || line.starts_with("\xE2\x80\xA2 "); }

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
  for (std::string& text : form.parts.texts) {
    form.numbers.emplace_back();
    if (!text::has_words(text, format)) continue;
    text = text::collapse_spaces(text);
    form.numbers.back() = list.number_of(text);
  }
  return form;
}

using TextTranslations = std::vector<std::vector<std::string>>;

// The first that has the codes of its source, else the first; "" if there is none.
std::string best_of(const std::vector<std::string>& translations, const std::string& source, const text::FormatSyntax& format) {
  const auto right = [&](const std::string& one) { return !text::strip(one).empty() && text::same_format_codes(source, one, format); };
  const auto found = std::find_if(translations.begin(), translations.end(), right);
  return found != translations.end() ? *found : translations.empty() ? "" : translations[0];
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
    const std::string& source = form.parts.texts[part];
    const std::optional<size_t> number = form.numbers[part];
    const std::string chosen = number ? best_of(translations.at(*number), source, format) : source;
    if (text::strip(chosen).empty()) return "";
    whole += form.parts.before[part] + with_hot_key(chosen, form.key, format);
  }
  return whole + form.parts.before.back();
}

bool is_too_long(const Form& form, const TextTranslations& translations) {
  return std::any_of(form.numbers.begin(), form.numbers.end(),
                     [&](const std::optional<size_t>& number) { return number && translations.at(*number).empty(); });
}

}  // namespace

MessageParts split_message(const std::string& message) {
  MessageParts parts;
  std::string before;
  bool goes_on = false;  // the line before this one had text
  for (size_t begin = 0; begin < message.size();) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    const std::string_view line = std::string_view(message).substr(begin, end - begin);
    const size_t first = line.find_first_not_of(kSpaces);
    if (first == std::string_view::npos) {
      before += line;
      goes_on = false;
    } else {
      const size_t last = line.find_last_not_of(kSpaces) + 1;
      const std::string_view text = line.substr(first, last - first);
      if (goes_on && first == 0 && !begins_item(text)) {
        parts.texts.back() += ' ';
        parts.texts.back() += text;
        before.clear();  // the line end that has become a space
      } else {
        parts.before.push_back(before + std::string(line.substr(0, first)));
        parts.texts.emplace_back(text);
      }
      before = line.substr(last);
      goes_on = true;
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
    const int64_t line = entries[i].line;
    if (forms[i].empty()) {
      report.names_translators.push_back(line);
      continue;
    }
    if (std::any_of(forms[i].begin(), forms[i].end(), [&](const Form& form) { return is_too_long(form, translations); })) {
      report.too_long.push_back(line);
      continue;
    }
    std::vector<std::string> filled;
    for (const Form& form : forms[i]) filled.push_back(put_together(form, translations, entries[i].format()));
    switch (file.fill(i, filled)) {
      case text::PoFilled::filled: ++report.filled; break;
      case text::PoFilled::format_codes_differ: report.format_codes_differ.push_back(line); break;
      case text::PoFilled::empty: report.untranslated.push_back(line); break;
    }
  }
  return report;
}

}  // namespace hinge::decode
