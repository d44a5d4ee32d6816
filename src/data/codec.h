// JPEG and PNG. What a file is, its first bytes say, not its name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace hinge::data {

// Into RGB, 8 bits: grey and palette pictures are expanded, 16 bits lose the lower 8, transparent pixels are laid over white, CMYK is
// converted without a colour profile. A file cut short is an error, never a half-grey picture. `name` is for the DataError.
void decode_image(std::span<const uint8_t> bytes, const std::string& name, Image& image);

Image read_image(const std::string& path);

// A PNG file of 1 or 3 channels.
std::vector<uint8_t> encode_png(const Image& image);

}  // namespace hinge::data
