// gzip and xz, unpacked from pieces of every size.
#include <algorithm>

#include "../target.h"
#include "text/unpacked_stream.h"

namespace hinge::fuzz {

static void packed_target(Input input) {
  if (input.empty()) return;
  const size_t piece = input[0] + size_t{1};
  input = input.subspan(1);
  text::UnpackedStream stream(
      [&](char* buffer, size_t size) {
        const size_t given = std::min({size, piece, input.size()});
        std::copy_n(input.begin(), given, buffer);
        input = input.subspan(given);
        return given;
      },
      "packed");
  char buffer[1000];
  size_t all = 0;
  while (const size_t got = stream.read(buffer, sizeof buffer)) {
    all += got;
    if (all > 1 << 20) return;  // a bomb takes a fuzzer's time
  }
}

const Target target_packed{"packed", &packed_target};

}  // namespace hinge::fuzz
