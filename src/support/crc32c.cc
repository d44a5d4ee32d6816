// By ISA-L, which uses the instructions that a processor has for it.
#include "support/crc32c.h"

#include <fmt/format.h>
#include <isa-l/crc.h>

#include <algorithm>

namespace hinge::support {

uint32_t crc32c(std::string_view bytes) {
  constexpr size_t kMost = 1 << 30;  // it counts in int
  uint32_t crc = 0xFFFFFFFFu;
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kMost);
    crc = ::crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())), static_cast<int>(part), crc);
    bytes.remove_prefix(part);
  }
  return ~crc;
}

std::string crc32c_text(std::string_view bytes) { return fmt::format("{:08x}", crc32c(bytes)); }

}  // namespace hinge::support
