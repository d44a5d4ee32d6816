// Packing, and the writing of catalogues.
#pragma once

#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../support/errors.h"
#include "../support/temporary_folder.h"

namespace hinge::text {

using support::TemporaryFolder;

inline std::string gzipped(const std::string& text) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::runtime_error("no zlib");
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string xzipped(const std::string& text) {
  std::string packed(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  if (lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                              reinterpret_cast<uint8_t*>(packed.data()), &size, packed.size()) != LZMA_OK)
    throw std::runtime_error("no lzma");
  packed.resize(size);
  return packed;
}

// A .mo file of these messages, given as "context\4id\0plural" and "form\0form". Without a hash table.
inline std::string mo_file(std::vector<std::pair<std::string, std::string>> messages, bool big_end_first = false) {
  std::sort(messages.begin(), messages.end());
  const auto word = [&](size_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> 8 * (big_end_first ? 3 - i : i) & 0xFF);
    return bytes;
  };
  const size_t n = messages.size(), header = 28;
  std::string originals, translations, strings;
  const auto add = [&](std::string& table, const std::string& text) {
    table += word(text.size()) + word(header + 16 * n + strings.size());
    strings += text + '\0';
  };
  for (const auto& [original, translation] : messages) add(originals, original);
  for (const auto& [original, translation] : messages) add(translations, translation);
  return word(0x950412de) + word(0) + word(n) + word(header) + word(header + 8 * n) + word(0) + word(0) + originals + translations +
         strings;
}

}  // namespace hinge::text
