// Reading by stdio.
#include "text/files.h"

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

constexpr size_t kChunk = 1 << 16;
constexpr size_t kMostUnpacked = 64 << 20;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string name_of(const std::string& path) { return path == "-" ? "standard input" : path; }

File open_file(const std::string& path) {
  if (path == "-") return {stdin, [](std::FILE*) { return 0; }};
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw TextError(path, 0, "is a folder where a file is expected");
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) throw TextError(path, 0, fmt::format("cannot be read: {}", std::strerror(errno)));
  return file;
}

UnpackedStream::Source source_of(std::FILE* file, const std::string& path) {
  return [file, path](char* buffer, size_t size) {
    const size_t got = std::fread(buffer, 1, size, file);
    if (std::ferror(file)) throw TextError(name_of(path), 0, fmt::format("cannot be read: {}", std::strerror(errno)));
    return got;
  };
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const File file = open_file(path);
  UnpackedStream stream(source_of(file.get(), path), name_of(path));
  std::string content;
  for (size_t got = 1; got > 0;) {
    const size_t before = content.size();
    content.resize(before + kChunk);
    got = stream.read(content.data() + before, kChunk);
    content.resize(before + got);
    if (stream.packed() && content.size() > kMostUnpacked)
      throw TextError(name_of(path), 0, fmt::format("unpacks to more than {} MiB; unpack it first, and split it", kMostUnpacked >> 20));
  }
  return content;
}

FileLines::FileLines(const std::string& path)
    : path_(name_of(path)), file_(open_file(path)), stream_(source_of(file_.get(), path), path_) {}

bool FileLines::read_more() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  buffer_.resize(before + kChunk);
  const size_t got = stream_.read(buffer_.data() + before, kChunk);
  buffer_.resize(before + got);
  return got > 0;
}

std::optional<FileLines::Line> FileLines::next() {
  size_t searched = 0;  // bytes behind at_ without a line end
  for (bool more = true;;) {
    const size_t end = buffer_.find('\n', at_ + searched);
    const bool whole = end != std::string::npos;
    if (!whole && !in_cut_line_ && more && buffer_.size() - at_ <= kLongest) {
      searched = buffer_.size() - at_;
      more = read_more();
      continue;
    }
    if (in_cut_line_) {  // passes over the rest of the line
      at_ = whole ? end + 1 : buffer_.size();
      in_cut_line_ = !whole && read_more();
      continue;
    }
    if (!whole && (at_ == buffer_.size() || (first_ && buffer_ == kByteOrderMark))) return std::nullopt;
    Line line{std::string_view(buffer_).substr(at_, whole ? end - at_ : std::string::npos)};
    line.cut = line.text.size() > kLongest;
    in_cut_line_ = line.cut && !whole;
    at_ = whole ? end + 1 : buffer_.size();
    if (first_ && line.text.starts_with(kByteOrderMark)) line.text.remove_prefix(kByteOrderMark.size());
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    return first_ = false, line;
  }
}

bool is_packed(const std::string& path) {
  std::array<char, 6> first{};
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(path == "-" ? nullptr : std::fopen(path.c_str(), "rb"), &std::fclose);
  const size_t got = file ? std::fread(first.data(), 1, first.size(), file.get()) : 0;
  return begins_packed({first.data(), got}).value_or(false);
}

std::vector<std::string_view> split_lines(std::string_view content) {
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
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
