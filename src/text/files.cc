// Reading by stdio; unpacking by zlib and liblzma.
#include "text/files.h"

#include <lzma.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "text/error.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

constexpr size_t kChunk = 1 << 20;

constexpr std::string_view kGzip = "\x1F\x8B";
constexpr std::string_view kXz("\xFD\x37zXZ\0", 6);

std::string read_stream(std::FILE* file, const std::string& path) {
  std::string content;
  for (;;) {
    const size_t before = content.size();
    content.resize(before + kChunk);
    const size_t got = std::fread(content.data() + before, 1, kChunk, file);
    content.resize(before + got);
    if (got == 0) break;
  }
  if (std::ferror(file)) throw TextError(path, 0, fmt::format("cannot be read: {}", std::strerror(errno)));
  return content;
}

// One gzip member after the other. What follows the last one and is not gzip is an error: it would silently be lost.
std::string gunzip(const std::string& packed, const std::string& path) {
  std::string content;
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw TextError(path, 0, "cannot be unpacked: zlib does not start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, &inflateEnd);
  size_t used = 0;
  int code = Z_OK;
  while (code != Z_STREAM_END || used < packed.size()) {
    if (code == Z_STREAM_END) inflateReset(&stream);
    // avail_in has 32 bits: larger files are fed in parts.
    const size_t offered = std::min<size_t>(packed.size() - used, size_t{1} << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + used));
    stream.avail_in = static_cast<uInt>(offered);
    const size_t before = content.size();
    content.resize(before + 4 * kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(content.data() + before);
    stream.avail_out = static_cast<uInt>(4 * kChunk);
    code = inflate(&stream, Z_NO_FLUSH);
    used += offered - stream.avail_in;
    content.resize(content.size() - stream.avail_out);
    if (code == Z_BUF_ERROR) throw TextError(path, 0, "is cut short: the gzip stream has no end; fetch it again");
    if (code != Z_OK && code != Z_STREAM_END)
      throw TextError(path, 0, fmt::format("is corrupt: {}; fetch it again", stream.msg != nullptr ? stream.msg : "not a gzip stream"));
  }
  return content;
}

std::string unxz(const std::string& packed, const std::string& path) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK)
    throw TextError(path, 0, "cannot be unpacked: liblzma does not start");
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard(&stream, &lzma_end);
  std::string content;
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  lzma_ret code = LZMA_OK;
  while (code != LZMA_STREAM_END) {
    const size_t before = content.size();
    content.resize(before + 4 * kChunk);
    stream.next_out = reinterpret_cast<uint8_t*>(content.data() + before);
    stream.avail_out = 4 * kChunk;
    code = lzma_code(&stream, LZMA_FINISH);
    content.resize(content.size() - stream.avail_out);
    if (code == LZMA_BUF_ERROR) throw TextError(path, 0, "is cut short: the xz stream has no end; fetch it again");
    if (code != LZMA_OK && code != LZMA_STREAM_END)
      throw TextError(path, 0, fmt::format("is corrupt (xz error {}); fetch it again", static_cast<int>(code)));
  }
  return content;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::string content, name = path;
  if (path == "-") {
    name = "standard input";
    content = read_stream(stdin, name);
  } else {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) throw TextError(path, 0, "is a folder where a file is expected");
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
    if (!file) throw TextError(path, 0, fmt::format("cannot be read: {}", std::strerror(errno)));
    content = read_stream(file.get(), path);
  }
  return unpack(std::move(content), name);
}

std::optional<bool> begins_packed(std::string_view begin) {
  if (begin.starts_with(kGzip) || begin.starts_with(kXz)) return true;
  if (kGzip.starts_with(begin) || kXz.starts_with(begin)) return std::nullopt;
  return false;
}

std::string unpack(std::string content, const std::string& name) {
  if (content.starts_with(kGzip)) return gunzip(content, name);
  if (content.starts_with(kXz)) return unxz(content, name);
  return content;
}

bool is_packed(const std::string& path) {
  std::array<char, 6> first{};
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(path == "-" ? nullptr : std::fopen(path.c_str(), "rb"), &std::fclose);
  const size_t got = file ? std::fread(first.data(), 1, first.size(), file.get()) : 0;
  return begins_packed({first.data(), got}).value_or(false);
}

std::vector<std::string_view> split_lines(std::string_view content) {
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
  return lines;
}

std::optional<std::string> utf8_problem(std::string_view line) {
  const std::optional<size_t> bad = find_invalid_utf8(line);
  if (!bad) return std::nullopt;
  return fmt::format("is not UTF-8: byte {} of the line is 0x{:02x}; convert it, for example with iconv -t UTF-8", *bad + 1,
                     static_cast<unsigned char>(line[*bad]));
}

void require_utf8(const std::vector<std::string_view>& lines, const std::string& path) {
  for (size_t i = 0; i < lines.size(); ++i)
    if (const std::optional<std::string> problem = utf8_problem(lines[i])) throw TextError(path, static_cast<int64_t>(i) + 1, *problem);
}

}  // namespace hinge::text
