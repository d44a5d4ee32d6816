// A picture, JPEG or PNG.
#include <zlib.h>

#include "../target.h"
#include "data/codec.h"

namespace hinge::fuzz {

static void image_target(Input input) {
  data::Image image;
  data::decode_image(input, "picture", image);
}

// The checksums of a PNG's chunks: length, type, data, checksum.
static void mend_image(std::span<uint8_t> input) {
  constexpr size_t kSignature = 8, kAround = 12;
  if (input.empty() || input[0] != 0x89) return;
  for (size_t at = kSignature; at + kAround <= input.size();) {
    const std::span<uint8_t> chunk = input.subspan(at);
    const size_t length = size_t{chunk[0]} << 24 | size_t{chunk[1]} << 16 | size_t{chunk[2]} << 8 | chunk[3];
    if (length > chunk.size() - kAround) return;
    const uLong checksum = ::crc32(0, chunk.data() + 4, static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i) chunk[length + 8 + i] = static_cast<uint8_t>(checksum >> (24 - 8 * i));
    at += length + kAround;
  }
}

const Target target_image{"image", &image_target, &mend_image};

}  // namespace hinge::fuzz
