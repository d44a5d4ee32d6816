// Message catalogues that people translate (.po): finds the entries without a translation, fills them, and leaves every other byte as it
// is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/format_codes.h"
#include "text/plural_forms.h"

namespace hinge::text {

// Whether a message is a placeholder for the names of those who translate, such as "translator-credits".
bool names_translators(const std::string& id, const std::string& context);

// Whether "context|message", as programs had it before there was msgctxt, may begin with this context: up to five words of letters, digits,
// and hyphens, underscores and colons within ("keyboard label", "calendar:week"), not all in capitals.
bool may_be_context(std::string_view text);

// One entry without a translation, escapes resolved.
struct PoEntry {
  int64_t line = 0;  // of its msgid
  std::string context, id, plural;
  std::vector<std::string> flags;  // "c-format", "fuzzy", ...
  // What to translate, one a form: id, without an old context ("Verb|Open"); of plural entries id or plural, as the form is for one or for
  // many.
  std::vector<std::string> sources;

  bool has_flag(std::string_view flag) const;
  FormatSyntax format() const;  // as the flags say
};

enum class PoFilled {
  filled,
  format_codes_differ,  // the translation does not hold the codes of its source; the entry stays empty
  empty,                // the translation is; the entry stays empty
};

class PoFile {
 public:
  // `name` is for messages. Throws TextError with the line if the text is no .po file or not UTF-8.
  PoFile(std::string text, const std::string& name);

  // In the order of the file. Not the header, nothing obsolete (#~), no plural entry of which a form is translated.
  const std::vector<PoEntry>& empty_entries() const { return entries_; }
  int64_t messages() const { return messages_; }                    // all but the header, obsolete ones not counted
  int64_t partly_translated() const { return partly_translated_; }  // plural messages of which only some forms are
  bool names_charset() const { return names_charset_; }      // the header says UTF-8; msgfmt does not accept a file that does not say it
  bool has_byte_order_mark() const;                          // nor one that begins with it
  const std::string& language() const { return language_; }  // "de" or "de_AT", as the header has it; empty if it does not say

  // Gives entry i of empty_entries() its translations, one a form, and marks it fuzzy. White space and line ends at the ends of a source
  // are put at the ends of its translation, as msgfmt asks for; a source that has nothing else is its own translation. Several calls for
  // one entry: the last one counts.
  PoFilled fill(size_t i, const std::vector<std::string>& translations);

  // The file with what was filled in, and there the lines of the msgid of empty_entries().
  std::string text() const;
  std::vector<int64_t> lines() const;

 private:
  struct Span {
    size_t begin = 0, end = 0;
  };
  // Where the parts of an entry are in the text.
  struct Places {
    int64_t line = 0;                 // of msgid
    std::optional<size_t> flags;      // behind the "#," of a line of flags, if there is one
    std::optional<size_t> new_flags;  // where a line of flags is to be inserted
    std::vector<Span> forms;          // the string of each msgstr, quotation marks included
  };
  struct Parsed;  // an entry, translated or not
  std::vector<Parsed> parse() const;
  void read_header(const Parsed& header);
  std::vector<std::string> sources(const PoEntry& entry, size_t forms) const;
  struct Change;  // of the text
  std::vector<Change> changes() const;

  std::string text_, name_, language_, line_end_ = "\n";
  std::vector<PoEntry> entries_;                    // empty ones
  std::vector<Places> places_;                      // of entries_
  std::vector<std::vector<std::string>> fillings_;  // of entries_, one a form; none: not filled
  PluralForms plurals_;
  int64_t messages_ = 0, partly_translated_ = 0;
  bool names_charset_ = false;
};

// The white space that `source`, which has something else, too, begins and ends with, around `translation` without its own.
std::string with_ends_of(std::string_view source, std::string_view translation);

// "de" of the locales "de", "de_AT", "de-AT", "de@euro" and "de.UTF-8".
std::string language_of(std::string_view locale);
// What is behind it, in lower case: "at" of the second and the third, "euro" as the variant of the fourth.
struct LocaleVariant {
  std::string country, variant;
  bool operator==(const LocaleVariant&) const = default;
};
LocaleVariant variant_of(std::string_view locale);

}  // namespace hinge::text
