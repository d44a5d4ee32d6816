// JPEG and PNG files of all kinds become RGB; damaged ones are errors that name the file.
#include "data/codec.h"

#include <cstring>

#include "writers.h"

namespace hinge::data {
namespace {

Image decode(const Bytes& bytes) {
  Image image;
  decode_image(bytes, "some.file", image);
  return image;
}

TEST(Png, RgbOfOddSizesComesBack) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 7}, {13, 5}, {64, 33}}) {
    const Image image{height, width, 3, pattern(Shape{height, width, 3}.count())};
    const Image back = decode(encode_png(image));
    EXPECT_EQ(back.shape(), image.shape());
    EXPECT_EQ(back.pixels, image.pixels);
  }
}

TEST(Png, GreyBecomesRgb) {
  const Image back = decode(encode_png({1, 3, 1, {0, 100, 255}}));
  EXPECT_EQ(back.shape(), (Shape{1, 3, 3}));
  EXPECT_EQ(back.pixels, (Bytes{0, 0, 0, 100, 100, 100, 255, 255, 255}));
}

TEST(Png, FewBitsGreyAreStretched) {
  const Image back = decode(png_file({.width = 4, .depth = 1, .colour_type = SPNG_COLOR_TYPE_GRAYSCALE, .rows = {0b10100000}}));
  EXPECT_EQ(back.pixels, (Bytes{255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 0}));
}

TEST(Png, SixteenBitsKeepTheUpperEight) {
  // Rows are given to the encoder in the machine's byte order.
  const std::vector<uint16_t> values = {0x1234, 0xFF00, 0x00FF};
  Bytes rows(6);
  std::memcpy(rows.data(), values.data(), 6);
  EXPECT_EQ(decode(png_file({.depth = 16, .rows = rows})).pixels, (Bytes{0x12, 0xFF, 0x00}));
  EXPECT_EQ(decode(png_file({.width = 3, .depth = 16, .colour_type = SPNG_COLOR_TYPE_GRAYSCALE, .rows = rows})).pixels,
            (Bytes{0x12, 0x12, 0x12, 0xFF, 0xFF, 0xFF, 0x00, 0x00, 0x00}));
}

TEST(Png, PaletteIsLookedUp) {
  const std::vector<spng_plte_entry> palette = {{10, 20, 30, 0}, {200, 100, 50, 0}};
  const PngContent content{.width = 3, .colour_type = SPNG_COLOR_TYPE_INDEXED, .rows = {1, 0, 1}, .palette = palette};
  EXPECT_EQ(decode(png_file(content)).pixels, (Bytes{200, 100, 50, 10, 20, 30, 200, 100, 50}));
}

TEST(Png, TransparencyLiesOverWhite) {
  const Bytes rgba = {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 200, 128};
  const Bytes expected = {10, 20, 30, 255, 255, 255, 127, 177, 227};
  EXPECT_EQ(decode(png_file({.width = 3, .colour_type = SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, .rows = rgba})).pixels, expected);
  EXPECT_EQ(decode(png_file({.width = 2, .colour_type = SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, .rows = {50, 255, 50, 0}})).pixels,
            (Bytes{50, 50, 50, 255, 255, 255}));
  const std::vector<spng_plte_entry> palette = {{10, 20, 30, 0}, {200, 100, 50, 0}};
  const PngContent indexed{
      .width = 2, .colour_type = SPNG_COLOR_TYPE_INDEXED, .rows = {1, 0}, .palette = palette, .palette_alpha = {0, 255}};
  EXPECT_EQ(decode(png_file(indexed)).pixels, (Bytes{200, 100, 50, 255, 255, 255}));
}

TEST(Png, DamageIsAnErrorWithTheName) {
  const Bytes good = encode_png({16, 16, 3, pattern(768)});
  for (const size_t size : {size_t{4}, size_t{20}, good.size() / 2, good.size() - 20, good.size() - 12})
    EXPECT_ERROR(decode(first(good, size)), "some.file: ", "PNG");
  Bytes flipped = good;
  flipped[flipped.size() / 2] ^= 0x10;
  EXPECT_ERROR(decode(flipped), "some.file: ", "PNG");
  Bytes huge = good;
  huge[16] = 0x7F;  // the width's first byte: 2 billion columns
  EXPECT_ERROR(decode(huge), "some.file: ");
}

TEST(Jpeg, ComesBackNearly) {
  for (const auto& [height, width] : {std::pair{1, 1}, {9, 17}, {40, 33}}) {
    Bytes pixels;  // smooth, since JPEG keeps little colour detail
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        for (const int value : {40 + 2 * y, 200 - 2 * x, 120}) pixels.push_back(static_cast<uint8_t>(value));
    const Image back = decode(jpeg_file(height, width, 3, pixels));
    ASSERT_EQ(back.shape(), (Shape{height, width, 3}));
    for (size_t i = 0; i < pixels.size(); ++i) ASSERT_NEAR(back.pixels[i], pixels[i], 4) << i;
  }
}

TEST(Jpeg, GreyAndCmykBecomeRgb) {
  const Image grey = decode(jpeg_file(8, 8, 1, Bytes(64, 90)));
  ASSERT_EQ(grey.shape(), (Shape{8, 8, 3}));
  for (const uint8_t value : grey.pixels) ASSERT_NEAR(value, 90, 1);

  Bytes cmyk;
  for (int i = 0; i < 64; ++i)
    for (const uint8_t value : {255, 128, 0, 200}) cmyk.push_back(value);
  const Image print = decode(jpeg_file(8, 8, 4, cmyk));
  ASSERT_EQ(print.shape(), (Shape{8, 8, 3}));
  EXPECT_NEAR(print.pixels[0], 200, 2);
  EXPECT_NEAR(print.pixels[1], 100, 2);
  EXPECT_NEAR(print.pixels[2], 0, 2);
}

TEST(Jpeg, DamageIsAnErrorWithTheName) {
  const Bytes good = jpeg_file(32, 32, 3, pattern(32 * 32 * 3));
  for (const size_t size : {size_t{3}, size_t{30}, good.size() / 2, good.size() - 40, good.size() - 2})
    EXPECT_ERROR(decode(first(good, size)), "some.file: ", "JPEG");
}

TEST(Codec, OtherFilesAreErrors) {
  EXPECT_ERROR(decode({}), "some.file: is empty");
  EXPECT_ERROR(decode({'G', 'I', 'F', '8', '9', 'a', 0, 0}), "some.file: is neither JPEG nor PNG");
  const TemporaryFolder folder;
  EXPECT_ERROR(read_image(folder.path("none.png")), "none.png: cannot be read: No such file");
  EXPECT_ERROR(read_image(folder.path()), "is a folder");
  EXPECT_ERROR(encode_png({1, 1, 2, {0, 0}}), "2 channels");
}

}  // namespace
}  // namespace hinge::data
