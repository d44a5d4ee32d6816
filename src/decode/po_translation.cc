#include "decode/po_translation.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "text/format_codes.h"
#include "text/hot_keys.h"
#include "text/unicode.h"

namespace hinge::decode {
namespace {

constexpr std::string_view kSpaces = " \t\r";

// "- ", "* ", "• " begin an item of a list.
bool begins_item(std::string_view line) { return line.starts_with("- ") || line.starts_with("* ") || line.starts_with("\xE2\x80\xA2 "); }

// One form of an entry, taken apart.
struct Form {
  text::HotKey key;  // of a message of one part
  MessageParts parts;
  std::vector<size_t> numbers;  // of the parts among all texts
};

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

  std::vector<std::string> texts;
  std::map<std::string, size_t> numbers;  // of texts: none is translated twice
  std::vector<std::vector<Form>> forms;
  for (const text::PoEntry& entry : entries) {
    forms.emplace_back();
    for (const std::string& source : entry.sources) {
      Form form;
      form.parts = split_message(source);
      if (form.parts.texts.size() == 1) {
        form.key = text::take_hot_key(form.parts.texts[0], entry.format());
        form.parts.texts[0] = form.key.label;
      }
      for (std::string& text : form.parts.texts) {
        text = text::collapse_spaces(text);
        const auto [place, is_new] = numbers.try_emplace(text, texts.size());
        if (is_new) texts.push_back(text);
        form.numbers.push_back(place->second);
      }
      forms.back().push_back(std::move(form));
    }
  }
  const std::vector<std::vector<std::string>> translations = translate(texts);

  for (size_t i = 0; i < entries.size(); ++i) {
    const text::FormatSyntax format = entries[i].format();
    const auto right = [&](const std::string& source, const std::string& target) {
      return text::same_format_codes(source, target, format);
    };
    std::vector<std::string> filled;
    for (const Form& form : forms[i]) {
      std::string whole;
      bool complete = true;
      for (size_t part = 0; part < form.numbers.size(); ++part) {
        const std::string& source = form.parts.texts[part];
        const std::vector<std::string>& all = translations.at(form.numbers[part]);
        const auto found =
            std::find_if(all.begin(), all.end(), [&](const std::string& one) { return !text::strip(one).empty() && right(source, one); });
        std::string chosen = found != all.end() ? *found : all.empty() ? std::string() : all[0];
        if (text::strip(chosen).empty()) complete = false;
        if (form.key.marker != 0) {
          const std::string marked = text::put_hot_key(chosen, form.key.marker, form.key.key);
          if (right(chosen, marked)) chosen = marked;  // a mark must not get into a code
        }
        whole += form.parts.before[part] + chosen;
      }
      filled.push_back(complete ? whole + form.parts.before.back() : std::string());
    }
    switch (file.fill(i, filled)) {
      case text::PoFilled::filled: ++report.filled; break;
      case text::PoFilled::format_codes_differ: report.format_codes_differ.push_back(entries[i].line); break;
      case text::PoFilled::empty: report.untranslated.push_back(entries[i].line); break;
    }
  }
  return report;
}

}  // namespace hinge::decode
