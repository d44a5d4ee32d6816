// Parallel text: pairs of a sentence and its translation, in documents; and its plain files, line i of one beside line i of the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/error.h"
#include "text/readers.h"

namespace hinge::text {

struct Pair {
  std::string source, target;
  bool operator==(const Pair&) const = default;
};

struct Document {
  std::string name;  // a catalogue's name, or "FILE:LINE" of its first line
  std::vector<Pair> pairs;
};

struct ParallelText {
  std::vector<Document> documents;  // none is empty
  Counts skipped;                   // pairs left out, by reason
  bool partial = false;             // the pairs that other readers have read are empty here

  int64_t pairs() const;
};

struct ParallelOptions {
  OnError on_error = OnError::stop;
  int64_t longest = 5000;  // characters of a line
};

// Two files with the same number of lines, UTF-8, also packed by gzip or xz. A line that is blank in both ends a document. White space at
// the ends of a line is dropped. Stops with TextError, or leaves out and counts: a line that is blank in one file only, is not UTF-8 or is
// longer than `longest`; lines of the longer file that have no partner. Several readers check and keep their own lines, all have the same
// documents, and stop with the error of the first bad line, whoever has found it; or if a reader has another text.
ParallelText read_parallel(const std::string& source_path, const std::string& target_path, const ParallelOptions& options = {},
                           const Readers& readers = {});

// Two such files, each of which appears whole or not at all; with `document_ends`, a blank line is between documents. Files of these names
// are replaced. Throws std::runtime_error if they cannot be written.
void write_parallel(const ParallelText& text, const std::string& source_path, const std::string& target_path, bool document_ends);

}  // namespace hinge::text
