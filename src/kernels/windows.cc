#include "hinge/kernels/windows.h"

#include <algorithm>

#define HWY_TARGET_INCLUDE "kernels/windows.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(pixels, window, before, inside) for each row of each window: `inside` numbers lie in the image, from `pixels` on; the window's
// row begins at `window`, and `before` of its numbers lie left of the image. Above and below the image, nothing is inside.
template <typename Body> void ForEachWindowRow(const WindowGrid& grid, int64_t n, const Body& body) {
  const int64_t row_size = 3 * grid.channels, down = grid.down(), across = grid.across();
  for (int64_t i = 0; i < n * down * across; ++i) {
    const int64_t image = i / (down * across), y = i / across % down * grid.stride - 1, x = i % across * grid.stride - 1;
    const int64_t first = std::max<int64_t>(x, 0), last = std::min(x + 3, grid.width);
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t window = (3 * i + row) * row_size;
      if (y + row < 0 || y + row >= grid.height)
        body(0, window, row_size, 0);
      else
        body(((image * grid.height + y + row) * grid.width + first) * grid.channels, window, (first - x) * grid.channels,
             (last - first) * grid.channels);
    }
  }
}

template <typename T> void GatherWindows(const WindowGrid& grid, int64_t n, const T* images, T* windows) {
  const int64_t row_size = 3 * grid.channels;
  ForEachWindowRow(grid, n, [&](int64_t pixels, int64_t window, int64_t before, int64_t inside) HWY_ATTR {
    T* to = windows + window;
    std::fill_n(to, before, T(0));
    std::copy_n(images + pixels, inside, to + before);
    std::fill_n(to + before + inside, row_size - before - inside, T(0));
  });
}

template <typename T> void AddWindows(const WindowGrid& grid, int64_t n, const T* windows, T* images) {
  ForEachWindowRow(grid, n, [&](int64_t pixels, int64_t window, int64_t before, int64_t inside) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const T* from = windows + window + before;
    T* to = images + pixels;
    ForVectors(d, inside, [&](int64_t j, int64_t count) HWY_ATTR {
      StoreFirst(hn::Add(LoadFirst(d, to + j, count), LoadFirst(d, from + j, count)), d, to + j, count);
    });
  });
}

HINGE_FLOAT_AND_DOUBLE(GatherWindows);
HINGE_FLOAT_AND_DOUBLE(AddWindows);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(GatherWindows);
HINGE_EXPORT(AddWindows);

template <typename T> void gather_windows(const WindowGrid& grid, int64_t n, const T* images, T* windows) {
  HINGE_DISPATCH(GatherWindows, T)(grid, n, images, windows);
}

template <typename T> void add_windows(const WindowGrid& grid, int64_t n, const T* windows, T* images) {
  HINGE_DISPATCH(AddWindows, T)(grid, n, windows, images);
}

HINGE_INSTANTIATE(gather_windows);
HINGE_INSTANTIATE(add_windows);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
