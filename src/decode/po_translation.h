// Fills the empty entries of message catalogues (.po): what is around the translation itself, such as hot keys, paragraphs and the choice
// of a translation whose format codes are right.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "text/po.h"

namespace hinge::decode {

// Of each text some translations, best first; none at all if it has more tokens than the model reads.
using TranslateTexts = std::function<std::vector<std::vector<std::string>>(const std::vector<std::string>& texts)>;

struct PoReport {
  int64_t messages = 0, empty = 0, filled = 0;
  // Lines, in the filled file, of entries that stay empty: no translation has the format codes; a text is too long for the model; a
  // translation is empty; the names of the translators belong there; there are control codes between the words, such as colours.
  std::vector<int64_t> format_codes_differ, too_long, untranslated, names_translators, control_codes;
};

// Texts are given to `translate` as the catalogues that models are trained on have them (text/catalogues.h): without hot keys, which the
// translation gets back, and with single spaces; the doubled apostrophes of Java are single ones. The parts of a message are translated one
// by one, and what is between them stays. What has no words (text::has_words) is its own translation. The first translation that has the
// format codes of its source is taken; an entry stays empty if there is none for one of its parts.
PoReport fill_po(text::PoFile& file, const TranslateTexts& translate);

// A message as what is translated, with what stands before each piece and behind the last: before[0] text[0] before[1] ... before[n].
// Pieces are paragraphs, which may be wrapped into lines, and other lines; and in a line what is between tabs or the gaps of columns.
// Options (the "-a, --all" of "-a, --all  show all") and the shortcut behind a tab ("Open\tCtrl+O") are not translated.
struct MessageParts {
  std::vector<std::string> before, texts;  // one more of the first
  std::vector<size_t> widths;              // of texts that are wrapped: the longest line in characters; else 0
};
MessageParts split_message(const std::string& message);

}  // namespace hinge::decode
