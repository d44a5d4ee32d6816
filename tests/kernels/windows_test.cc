// Windows of images against plain loops, on every SIMD target: odd sizes, strides that leave pixels over, both directions.
#include "hinge/kernels/windows.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "problem.h"

namespace hinge::kernels::testing {
namespace {

// Calls body(place in the images, place in the windows) for every pixel of a window that lies in an image.
template <typename Body> void for_each_pixel(const WindowGrid& g, int64_t n, const Body& body) {
  int64_t window = 0;
  for (int64_t image = 0; image < n; ++image)
    for (int64_t y = 0; y < g.height; y += g.stride)
      for (int64_t x = 0; x < g.width; x += g.stride)
        for (int64_t v = y - 1; v <= y + 1; ++v)
          for (int64_t u = x - 1; u <= x + 1; ++u)
            for (int64_t c = 0; c < g.channels; ++c, ++window)
              if (v >= 0 && v < g.height && u >= 0 && u < g.width)
                body(static_cast<size_t>(((image * g.height + v) * g.width + u) * g.channels + c), static_cast<size_t>(window));
}

template <typename T> void matches() {
  std::mt19937 random(1);
  const auto whole_numbers = [&](size_t count) {  // their sums are exact
    std::vector<T> numbers(count);
    for (T& number : numbers) number = static_cast<T>(random() % 64);
    return numbers;
  };
  constexpr int64_t n = 3;
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {1, 6}, {5, 4}, {8, 8}})
    for (const int64_t channels : {1, 3, 19})
      for (const int64_t stride : {1, 2, 3}) {
        const WindowGrid g{height, width, channels, stride};
        const auto pixels = static_cast<size_t>(n * height * width * channels),
                   places = static_cast<size_t>(n * g.down() * g.across() * g.window_size());
        const std::vector<T> images = whole_numbers(pixels), windows = whole_numbers(places);
        std::vector<T> gathered(places, 0), added = whole_numbers(pixels);
        const std::vector<T> before = added;
        for_each_pixel(g, n, [&](size_t pixel, size_t place) {
          gathered[place] = images[pixel];
          added[pixel] += windows[place];
        });
        for_each_simd_target([&] {
          std::vector<T> got(places, T(-1)), sum = before;
          gather_windows(g, n, images.data(), got.data());
          EXPECT_EQ(got, gathered) << height << "x" << width << "x" << channels << " by " << stride;
          add_windows(g, n, windows.data(), sum.data());
          EXPECT_EQ(sum, added) << height << "x" << width << "x" << channels << " by " << stride;
        });
      }
}

TEST(Windows, AreGatheredAndAdded) {
  matches<float>();
  matches<double>();
}

}  // namespace
}  // namespace hinge::kernels::testing
