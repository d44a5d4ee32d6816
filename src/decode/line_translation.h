// Translation of lines as they come, each by itself or as parts of documents: what is translated together, and what is written for each
// line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode/documents.h"
#include "decode/translator.h"
#include "text/line_reader.h"

namespace hinge::decode {

// What belongs in the place of a line. The translation of a part of a document stands in the place of its first line; its other lines and
// the blank lines between documents have none.
struct LineAnswer {
  size_t line = 0;                    // counted from 0 over the whole input
  std::span<const Translation> best;  // best first
};

class LineTranslation {
 public:
  // With `part_tokens`, the lines are those of documents, which are translated in parts of at most so many source tokens (longest_source),
  // and of not more than the model reads. Otherwise each line is translated by itself. Keeps a reference to the translator.
  LineTranslation(const Translator& translator, std::optional<int64_t> part_tokens);

  // The next line, valid UTF-8. A blank line ends a document. Throws std::runtime_error if the model cannot read a line of that length, and
  // forgets that line.
  void add(std::string_view line);
  // Ends the document, where a file ends.
  void end_document();

  // Translates what can be: all lines, but for a part of a document that may go on. `write` gets the answers to consecutive lines, in their
  // order and group by group. `progress` is as that of Translator; when it has returned false, the work is over.
  using Write = std::function<void(std::span<const LineAnswer> answers)>;
  TranslationCounts translate(const Write& write, const Translator::Progress& progress = {});

 private:
  struct Part {
    size_t line = 0;  // its first
    Source source;
  };
  void close_part();

  const Translator& translator_;
  std::optional<DocumentCutter> cutter_;
  std::vector<Part> parts_;   // closed and not yet translated
  std::optional<Part> open_;  // the part that may go on
  size_t lines_ = 0;          // added
  size_t answered_ = 0;       // of these
};

// What translate_lines() has done. The counts are of lines, or of parts of documents.
struct LinesDone {
  TranslationCounts counts;
  bool read_all = false;  // the input was read to its end
};

// Translates everything that `reader` gives. If it is live, each group of waiting lines is answered before the next one is taken; otherwise
// everything is read and checked first, a large input in parts of 16 MiB. Ends early, after the batches at hand, when `stopped` returns
// true. `progress`, if any, is called after each batch. Throws TextError for a line that is not UTF-8 or too long; if the reader is live,
// all lines before it were answered.
LinesDone translate_lines(const Translator& translator, text::LineReader& reader, std::optional<int64_t> part_tokens,
                          const LineTranslation::Write& write, const std::function<bool()>& stopped,
                          const std::function<void(int64_t done, int64_t all)>& progress = {});

}  // namespace hinge::decode
