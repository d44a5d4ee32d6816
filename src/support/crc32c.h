// CRC-32C (Castagnoli), the checksum of checkpoints and event files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hinge::support {

uint32_t crc32c(std::string_view bytes);

// The same as eight hexadecimal digits, as files of text store it.
std::string crc32c_text(std::string_view bytes);

}  // namespace hinge::support
