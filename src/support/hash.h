// FNV-1a: the same number for the same bytes on every machine and in every version, as what is stored or split by it needs.
#pragma once

#include <cstdint>
#include <string_view>

namespace hinge::support {

inline uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace hinge::support
