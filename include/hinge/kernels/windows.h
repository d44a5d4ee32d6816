// The windows of 3 x 3 pixels that a convolution sees, as rows, and back: what makes a convolution a product.
#pragma once

#include <cstdint>

namespace hinge::kernels {

// Images [height, width, channels], with a border of one pixel of zeros around them. There is a window around every `stride`-th pixel of
// every `stride`-th row; within it the order is row, column, channel.
struct WindowGrid {
  int64_t height, width, channels, stride;

  int64_t down() const { return (height - 1) / stride + 1; }
  int64_t across() const { return (width - 1) / stride + 1; }
  int64_t window_size() const { return 9 * channels; }
};

// n images to windows [n, down, across, window_size].
template <typename T> void gather_windows(const WindowGrid& grid, int64_t n, const T* images, T* windows);

// The transpose: adds every window's pixels to the images'.
template <typename T> void add_windows(const WindowGrid& grid, int64_t n, const T* windows, T* images);

}  // namespace hinge::kernels
