#include "decode/documents.h"

#include <algorithm>

#include "text/unicode.h"

namespace hinge::decode {

int64_t longest_source(int64_t document_tokens, int64_t source_tokens, int64_t target_tokens) {
  return target_tokens > source_tokens ? document_tokens * source_tokens / target_tokens : document_tokens;
}

std::vector<DocumentPart> cut_documents(const std::vector<std::string_view>& lines, const std::vector<size_t>& files,
                                        const std::vector<int64_t>& tokens, int64_t most) {
  std::vector<DocumentPart> parts;
  int64_t room = -1;  // of the last part; below 0: it is closed
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::find(files.begin(), files.end(), i) != files.end()) room = -1;
    if (text::strip(lines[i]).empty()) {
      room = -1;
      continue;
    }
    if (room < 0 || tokens[i] > room) parts.push_back({i, 0}), room = most - 1;
    ++parts.back().lines;
    room -= tokens[i];
  }
  return parts;
}

}  // namespace hinge::decode
