// Writes the formats that the product reads, with the libraries or by hand.
#pragma once

#include <jpeglib.h>
#include <spng.h>
#include <zlib.h>

#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <initializer_list>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "data/image.h"

namespace hinge::data {

using support::TemporaryFolder;
using Bytes = std::vector<uint8_t>;

inline Bytes idx_file(std::initializer_list<int> dimensions, const Bytes& elements) {
  Bytes bytes = {0, 0, 8, static_cast<uint8_t>(dimensions.size())};
  for (const int d : dimensions)
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(d >> shift));
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

inline Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes out(bytes.size() + 1000);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A PNG of any colour type and depth from raw rows; palette and transparency on request.
struct PngContent {
  uint32_t height = 1, width = 1;
  uint8_t depth = 8, colour_type = SPNG_COLOR_TYPE_TRUECOLOR;
  Bytes rows;
  std::vector<spng_plte_entry> palette = {};
  Bytes palette_alpha = {};
};

inline Bytes png_file(const PngContent& content) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_ihdr header{content.width, content.height, content.depth, content.colour_type, 0, 0, 0};
  EXPECT_EQ(spng_set_ihdr(context, &header), 0);
  if (!content.palette.empty()) {
    spng_plte palette{};
    palette.n_entries = static_cast<uint32_t>(content.palette.size());
    std::copy(content.palette.begin(), content.palette.end(), palette.entries);
    EXPECT_EQ(spng_set_plte(context, &palette), 0);
  }
  if (!content.palette_alpha.empty()) {
    spng_trns transparency{};
    transparency.n_type3_entries = static_cast<uint32_t>(content.palette_alpha.size());
    std::copy(content.palette_alpha.begin(), content.palette_alpha.end(), transparency.type3_alpha);
    EXPECT_EQ(spng_set_trns(context, &transparency), 0);
  }
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  EXPECT_EQ(spng_encode_image(context, content.rows.data(), content.rows.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
  size_t size = 0;
  int error = 0;
  uint8_t* file = static_cast<uint8_t*>(spng_get_png_buffer(context, &size, &error));
  EXPECT_EQ(error, 0);
  Bytes bytes(file, file + size);
  std::free(file);
  spng_ctx_free(context);
  return bytes;
}

// Quality 100. Four channels are CMYK as Adobe writes it: light, not ink.
inline Bytes jpeg_file(int height, int width, int channels, Bytes pixels) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + info.next_scanline * static_cast<size_t>(width * channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(buffer, buffer + size);
  std::free(buffer);
  return bytes;
}

// Bytes that differ from place to place.
inline Bytes pattern(size_t count, int seed = 0) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>((i * 37 + static_cast<size_t>(seed) * 101 + i / 7 * 13) % 256);
  return bytes;
}

inline Bytes first(const Bytes& bytes, size_t count) { return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)}; }

}  // namespace hinge::data
