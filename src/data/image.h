// A decoded picture: bytes, rows from the top, channels interleaved (HWC).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hinge::data {

// Larger pictures are taken for corrupt before memory is asked for: those of a file, and those that one would be resized to.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
inline constexpr int64_t kMaxPixels = int64_t{1} << 16, kMaxSide = int64_t{1} << 12;  // a fuzzer has no time for large ones
#else
inline constexpr int64_t kMaxPixels = int64_t{1} << 26, kMaxSide = int64_t{1} << 20;
#endif
inline bool is_sane_size(int64_t height, int64_t width) {
  return height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide && height * width <= kMaxPixels;
}

struct Shape {
  int height = 0, width = 0, channels = 0;

  bool operator==(const Shape&) const = default;
  size_t count() const { return static_cast<size_t>(height) * static_cast<size_t>(width) * static_cast<size_t>(channels); }
};

struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;

  Shape shape() const { return {height, width, channels}; }
  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  uint8_t* row(int y) { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  const uint8_t* row(int y) const { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }

  // The pixels are then to be written; memory is kept.
  void reshape(int new_height, int new_width, int new_channels) {
    height = new_height;
    width = new_width;
    channels = new_channels;
    pixels.resize(shape().count());
  }
};

}  // namespace hinge::data
