// The sixteen operations of RandAugment. Uncovered pixels become mid grey. Distances in pixels were meant for images of 224 and scale
// with the shorter side.
#include "data/randaug.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace hinge::data {
namespace {

constexpr uint8_t kGrey = 128;

uint8_t to_byte(double value) { return static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0)); }

double pixels_at_224(const Image& image, double pixels) { return pixels * std::min(image.height, image.width) / 224; }

double either_sign(double value, Random& random) { return random.coin() ? value : -value; }

using Table = std::array<uint8_t, 256>;

template <typename F> Table table_of(F value) {
  Table table;
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = value(i);
  return table;
}

void map_bytes(Image& image, const Table& table) {
  for (uint8_t& value : image.pixels) value = table[value];
}

// One table for each channel, made from the channel's histogram.
template <typename F> void map_channels(Image& image, F table_from_histogram) {
  for (int channel = 0; channel < image.channels; ++channel) {
    std::array<int64_t, 256> histogram{};
    for (size_t i = static_cast<size_t>(channel); i < image.pixels.size(); i += static_cast<size_t>(image.channels))
      ++histogram[image.pixels[i]];
    const Table table = table_from_histogram(histogram);
    for (size_t i = static_cast<size_t>(channel); i < image.pixels.size(); i += static_cast<size_t>(image.channels))
      image.pixels[i] = table[image.pixels[i]];
  }
}

void auto_contrast(Image& image, Image&, double, Random&) {
  map_channels(image, [](const std::array<int64_t, 256>& histogram) {
    int low = 0, high = 255;
    while (low < 255 && histogram[static_cast<size_t>(low)] == 0) ++low;
    while (high > 0 && histogram[static_cast<size_t>(high)] == 0) --high;
    return table_of([=](int i) { return low >= high ? static_cast<uint8_t>(i) : to_byte(255.0 * (i - low) / (high - low)); });
  });
}

// Levels by rank: each of 255 steps takes the same number of pixels, those of the highest level not counted.
void equalize(Image& image, Image&, double, Random&) {
  map_channels(image, [](const std::array<int64_t, 256>& histogram) {
    int64_t total = 0, last = 0;
    for (const int64_t count : histogram)
      if (count != 0) total += last = count;
    const int64_t step = (total - last) / 255;
    if (step == 0) return table_of([](int i) { return static_cast<uint8_t>(i); });
    int64_t below = step / 2;
    return table_of([&](int i) {
      const int64_t level = std::min<int64_t>(below / step, 255);
      below += histogram[static_cast<size_t>(i)];
      return static_cast<uint8_t>(level);
    });
  });
}

void invert(Image& image, Image&, double, Random&) {
  map_bytes(image, table_of([](int i) { return static_cast<uint8_t>(255 - i); }));
}

// Keeps fewer bits the smaller the magnitude, as in AutoAugment; at least one.
void posterize(Image& image, Image&, double strength, Random&) {
  const int bits = std::clamp(static_cast<int>(strength * 4), 1, 8);
  map_bytes(image, table_of([=](int i) { return static_cast<uint8_t>(i >> (8 - bits) << (8 - bits)); }));
}

// Inverts fewer pixels the larger the magnitude, as in AutoAugment; from magnitude 10 on none.
void solarize(Image& image, Image&, double strength, Random&) {
  const int threshold = static_cast<int>(strength * 256);
  map_bytes(image, table_of([=](int i) { return static_cast<uint8_t>(i < threshold ? i : 255 - i); }));
}

void solarize_add(Image& image, Image&, double strength, Random&) {
  const int addition = static_cast<int>(strength * 110);
  map_bytes(image, table_of([=](int i) { return static_cast<uint8_t>(i < 128 ? std::min(i + addition, 255) : i); }));
}

// The factor of the four enhancements: 0 gives the plain picture without the property, 1 the image itself, more exaggerates.
double enhancement(double strength) { return 0.1 + 1.8 * strength; }

uint8_t blend(double plain, double value, double factor) { return to_byte(plain + factor * (value - plain)); }

double luma(const uint8_t* pixel, int channels) {
  return channels == 1 ? pixel[0] : 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
}

void color(Image& image, Image&, double strength, Random&) {
  if (image.channels == 1) return;
  const double factor = enhancement(strength);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const double grey = luma(&image.pixels[i], 3);
    for (size_t channel = 0; channel < 3; ++channel) image.pixels[i + channel] = blend(grey, image.pixels[i + channel], factor);
  }
}

void contrast(Image& image, Image&, double strength, Random&) {
  const double factor = enhancement(strength);
  double mean = 0;
  for (size_t i = 0; i < image.pixels.size(); i += static_cast<size_t>(image.channels)) mean += luma(&image.pixels[i], image.channels);
  mean /= static_cast<double>(image.height) * image.width;
  map_bytes(image, table_of([=](int i) { return blend(mean, i, factor); }));
}

void brightness(Image& image, Image&, double strength, Random&) {
  const double factor = enhancement(strength);
  map_bytes(image, table_of([=](int i) { return blend(0, i, factor); }));
}

// Against the picture smoothed by 3x3 weights, 5 in the middle and 1 around; the border stays.
void sharpness(Image& image, Image& other, double strength, Random&) {
  const double factor = enhancement(strength);
  other = image;
  const std::ptrdiff_t step = image.channels;
  for (int y = 1; y + 1 < image.height; ++y)
    for (std::ptrdiff_t x = step; x < static_cast<std::ptrdiff_t>(image.row_bytes()) - step; ++x) {
      int sum = 4 * other.row(y)[x];
      for (int row = y - 1; row <= y + 1; ++row) sum += other.row(row)[x - step] + other.row(row)[x] + other.row(row)[x + step];
      image.row(y)[x] = blend(sum / 13.0, other.row(y)[x], factor);
    }
}

// Output pixel (x, y) shows the input at (xx x + xy y + x0, yx x + yy y + y0), nearest, coordinates from the image's centre.
struct Affine {
  double xx = 1, xy = 0, x0 = 0, yx = 0, yy = 1, y0 = 0;
};

void warp(Image& image, Image& other, const Affine& map) {
  other.reshape(image.height, image.width, image.channels);
  const double middle_x = (image.width - 1) / 2.0, middle_y = (image.height - 1) / 2.0;
  const size_t channels = static_cast<size_t>(image.channels);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) {
      const double dx = x - middle_x, dy = y - middle_y;
      const double from_x = std::floor(map.xx * dx + map.xy * dy + map.x0 + middle_x + 0.5);
      const double from_y = std::floor(map.yx * dx + map.yy * dy + map.y0 + middle_y + 0.5);
      uint8_t* to = other.row(y) + static_cast<size_t>(x) * channels;
      if (from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height)
        std::copy_n(image.row(static_cast<int>(from_y)) + static_cast<size_t>(from_x) * channels, channels, to);
      else
        std::fill_n(to, channels, kGrey);
    }
  std::swap(image, other);
}

void rotate(Image& image, Image& other, double strength, Random& random) {
  const double angle = either_sign(strength * 30 * std::numbers::pi / 180, random);
  warp(image, other, {.xx = std::cos(angle), .xy = -std::sin(angle), .yx = std::sin(angle), .yy = std::cos(angle)});
}

void shear_x(Image& image, Image& other, double strength, Random& random) {
  warp(image, other, {.xy = either_sign(strength * 0.3, random)});
}

void shear_y(Image& image, Image& other, double strength, Random& random) {
  warp(image, other, {.yx = either_sign(strength * 0.3, random)});
}

void translate_x(Image& image, Image& other, double strength, Random& random) {
  warp(image, other, {.x0 = either_sign(pixels_at_224(image, strength * 100), random)});
}

void translate_y(Image& image, Image& other, double strength, Random& random) {
  warp(image, other, {.y0 = either_sign(pixels_at_224(image, strength * 100), random)});
}

// A grey square of 2 r pixels around a random place, cut off at the border.
void cutout(Image& image, Image&, double strength, Random& random) {
  const int r = static_cast<int>(pixels_at_224(image, strength * 40));
  const int y = static_cast<int>(random.below(static_cast<uint64_t>(image.height)));
  const int x = static_cast<int>(random.below(static_cast<uint64_t>(image.width)));
  const int left = std::max(x - r, 0), right = std::min(x + r, image.width);
  for (int row = std::max(y - r, 0); row < std::min(y + r, image.height); ++row)
    std::fill(image.row(row) + left * image.channels, image.row(row) + right * image.channels, kGrey);
}

constexpr std::array<RandAugOperation, 16> kOperations = {{{"AutoContrast", auto_contrast},
                                                           {"Equalize", equalize},
                                                           {"Invert", invert},
                                                           {"Rotate", rotate},
                                                           {"Posterize", posterize},
                                                           {"Solarize", solarize},
                                                           {"Color", color},
                                                           {"Contrast", contrast},
                                                           {"Brightness", brightness},
                                                           {"Sharpness", sharpness},
                                                           {"ShearX", shear_x},
                                                           {"ShearY", shear_y},
                                                           {"TranslateX", translate_x},
                                                           {"TranslateY", translate_y},
                                                           {"Cutout", cutout},
                                                           {"SolarizeAdd", solarize_add}}};

}  // namespace

std::span<const RandAugOperation> randaug_operations() { return kOperations; }

void randaug(Image& image, Image& other, int n, double m, Random& random) {
  for (int i = 0; i < n; ++i) kOperations[random.below(kOperations.size())].apply(image, other, m / 10, random);
}

}  // namespace hinge::data
