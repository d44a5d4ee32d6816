// Documents as models of documents read them: consecutive sentences of a document, up to a number of tokens. The counterpart of what
// text/corpus.h cuts for training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hinge::decode {

// Lines [first, first + lines), none of them blank.
struct DocumentPart {
  size_t first = 0, lines = 0;
  bool operator==(const DocumentPart&) const = default;
};

// The source tokens that a part may have, end token included. Training closes a part when either side has `document_tokens`; here the
// target is not there yet, but the tokens of both sides of the training text tell how long it will be.
int64_t longest_source(int64_t document_tokens, int64_t source_tokens, int64_t target_tokens);

// Blank lines end documents, and so do files: `files` has the number of the first line of each. tokens[i] is the number of pieces of line
// i; a part has at most `most` of them with its end token, unless a single line has more.
std::vector<DocumentPart> cut_documents(const std::vector<std::string_view>& lines, const std::vector<size_t>& files,
                                        const std::vector<int64_t>& tokens, int64_t most);

}  // namespace hinge::decode
