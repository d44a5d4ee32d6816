// libjpeg-turbo and libspng behind one function.
#include "data/codec.h"

#include <jerror.h>
#include <jpeglib.h>
#include <spng.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <memory>

#include "data/error.h"
#include "data/files.h"

namespace hinge::data {
namespace {

constexpr size_t kMostChunkBytes = 16 << 20;  // of a PNG's texts and profiles, unpacked

void require_sane_size(int64_t height, int64_t width, const std::string& name) {
  if (!is_sane_size(height, width))
    throw DataError(name, fmt::format("claims {}x{} pixels: it is corrupt or too large; at most {} pixels are allowed, {} along a side",
                                      height, width, kMaxPixels, kMaxSide));
}

// Ink c and black k of a CMYK picture, both as light let through, to one of red, green, blue.
uint8_t light(uint8_t c, uint8_t k) { return static_cast<uint8_t>((c * k + 127) / 255); }

// libjpeg leaves by longjmp on errors. What it jumps over must have nothing to destroy: the two functions that call it, read_header and
// read_rows, own nothing; the decoder here does.
struct JpegDecoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX]{};

  JpegDecoder() {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      JpegDecoder& self = *static_cast<JpegDecoder*>(common->client_data);
      common->err->format_message(common, self.message);
      std::longjmp(self.back, 1);
    };
    // A warning means that pixels were guessed, except for these, which damage nothing.
    errors.emit_message = [](j_common_ptr common, int level) {
      const int code = common->err->msg_code;
      if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM && code != JWRN_NOT_SEQUENTIAL &&
          code != JWRN_TOO_MUCH_DATA)
        common->err->error_exit(common);
    };
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  bool read_header(const uint8_t* bytes, size_t size) {
    if (setjmp(back) != 0) return false;
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, bytes, size);
    jpeg_read_header(&info, TRUE);
    const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&info);
    return true;
  }

  // `pixels` holds all rows of info.output_components bytes a pixel.
  bool read_rows(uint8_t* pixels) {
    if (setjmp(back) != 0) return false;
    jpeg_start_decompress(&info);
    const size_t row_bytes = size_t{info.output_width} * static_cast<size_t>(info.output_components);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = pixels + info.output_scanline * row_bytes;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

void decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, Image& image) {
  JpegDecoder decoder;
  const auto corrupt = [&] { return DataError(name, fmt::format("is a corrupt or truncated JPEG: {}", decoder.message)); };
  if (!decoder.read_header(bytes.data(), bytes.size())) throw corrupt();
  const int height = static_cast<int>(decoder.info.output_height), width = static_cast<int>(decoder.info.output_width);
  require_sane_size(height, width, name);
  image.reshape(height, width, 3);
  if (decoder.info.out_color_space == JCS_RGB) {
    if (!decoder.read_rows(image.pixels.data())) throw corrupt();
    return;
  }
  std::vector<uint8_t> cmyk(static_cast<size_t>(height) * static_cast<size_t>(width) * 4);
  if (!decoder.read_rows(cmyk.data())) throw corrupt();
  if (!decoder.info.saw_Adobe_marker)  // Adobe stores light, others ink
    for (uint8_t& value : cmyk) value = static_cast<uint8_t>(255 - value);
  for (size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel)
    for (size_t channel = 0; channel < 3; ++channel)
      image.pixels[3 * pixel + channel] = light(cmyk[4 * pixel + channel], cmyk[4 * pixel + 3]);
}

struct FreeSpng {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

void decode_png(std::span<const uint8_t> bytes, const std::string& name, Image& image) {
  const std::unique_ptr<spng_ctx, FreeSpng> context(spng_ctx_new(0));
  if (!context) throw std::bad_alloc();
  const auto require = [&](int error) {
    if (error != 0) throw DataError(name, fmt::format("is a corrupt or truncated PNG: {}", spng_strerror(error)));
  };
  spng_ihdr header{};
  const size_t most_chunk_bytes = std::max(kMostChunkBytes, bytes.size());  // the limit is one of the picture's own chunks, too
  require(spng_set_chunk_limits(context.get(), most_chunk_bytes, most_chunk_bytes));
  require(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()));
  require(spng_get_ihdr(context.get(), &header));
  require_sane_size(header.height, header.width, name);
  spng_trns transparency{};
  const bool has_alpha = header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA || header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
                         spng_get_trns(context.get(), &transparency) == 0;
  // With alpha, four bytes a pixel become three in their place.
  const int height = static_cast<int>(header.height), width = static_cast<int>(header.width);
  image.reshape(height, width, has_alpha ? 4 : 3);
  uint8_t* const bytes_out = image.pixels.data();
  require(spng_decode_image(context.get(), bytes_out, image.pixels.size(), has_alpha ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8,
                            has_alpha ? SPNG_DECODE_TRNS : 0));
  if (has_alpha) {
    for (size_t pixel = 0; pixel < image.pixels.size() / 4; ++pixel) {
      const int alpha = bytes_out[4 * pixel + 3];
      for (size_t channel = 0; channel < 3; ++channel)
        bytes_out[3 * pixel + channel] = static_cast<uint8_t>((bytes_out[4 * pixel + channel] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
    image.reshape(height, width, 3);
  }
  // The decoder stops at the last row; the end of the file must be there too.
  require(spng_decode_chunks(context.get()));
}

}  // namespace

void decode_image(std::span<const uint8_t> bytes, const std::string& name, Image& image) {
  const auto begins_with = [&](std::initializer_list<uint8_t> magic) {
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
  };
  if (bytes.empty()) throw DataError(name, "is empty; fetch it again or remove it");
  if (begins_with({0xFF, 0xD8, 0xFF}))
    decode_jpeg(bytes, name, image);
  else if (begins_with({0x89, 'P', 'N', 'G'}))
    decode_png(bytes, name, image);
  else
    throw DataError(name, "is neither JPEG nor PNG: it is corrupt or needs converting");
}

Image read_image(const std::string& path) {
  Image image;
  decode_image(read_bytes(path), path, image);
  return image;
}

std::vector<uint8_t> encode_png(const Image& image) {
  if (image.channels != 1 && image.channels != 3)
    throw std::runtime_error(fmt::format("cannot write a PNG of {} channels: give 1 or 3", image.channels));
  const std::unique_ptr<spng_ctx, FreeSpng> context(spng_ctx_new(SPNG_CTX_ENCODER));
  if (!context) throw std::bad_alloc();
  const auto require = [&](int error) {
    if (error != 0)
      throw std::runtime_error(fmt::format("cannot write a PNG of {}x{} pixels: {}", image.height, image.width, spng_strerror(error)));
  };
  spng_ihdr header{};
  header.height = static_cast<uint32_t>(image.height);
  header.width = static_cast<uint32_t>(image.width);
  header.bit_depth = 8;
  header.color_type = image.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  require(spng_set_ihdr(context.get(), &header));
  require(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  require(spng_encode_image(context.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int error = 0;
  const std::unique_ptr<uint8_t, void (*)(void*)> file(static_cast<uint8_t*>(spng_get_png_buffer(context.get(), &size, &error)),
                                                       &std::free);
  require(error);
  return {file.get(), file.get() + size};
}

}  // namespace hinge::data
