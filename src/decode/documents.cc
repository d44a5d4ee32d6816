#include "decode/documents.h"

namespace hinge::decode {

int64_t longest_source(int64_t document_tokens, int64_t source_tokens, int64_t target_tokens) {
  return target_tokens > source_tokens ? document_tokens * source_tokens / target_tokens : document_tokens;
}

bool DocumentCutter::begins_part(int64_t pieces) {
  const bool begins = room_ < 0 || pieces > room_;
  if (begins) room_ = most_ - 1;
  room_ -= pieces;
  return begins;
}

}  // namespace hinge::decode
