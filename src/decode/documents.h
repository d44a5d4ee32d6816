// Documents as models of documents read them: consecutive sentences of a document, up to a number of tokens. The counterpart of what
// text/corpus.h cuts for training.
#pragma once

#include <cstdint>

namespace hinge::decode {

// The source tokens that a part may have, end token included. Training closes a part when either side has `document_tokens`; here the
// target is not there yet, but the tokens of both sides of the training text tell how long it will be.
int64_t longest_source(int64_t document_tokens, int64_t source_tokens, int64_t target_tokens);

// Cuts documents into parts, line by line. A part has at most `most` tokens, end token included, unless a single line has more.
class DocumentCutter {
 public:
  explicit DocumentCutter(int64_t most) : most_(most) {}

  // The next line, of so many pieces. Whether it begins a part; otherwise it belongs to the last one.
  bool begins_part(int64_t pieces);
  // The next line begins a document.
  void end_document() { room_ = -1; }

 private:
  int64_t most_;
  int64_t room_ = -1;  // pieces that the last part still takes; below 0: it is closed
};

}  // namespace hinge::decode
