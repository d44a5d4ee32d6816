// Text files, whole or line by line: plain, gzip or xz, told apart by their first bytes, not by their names. For lines as somebody writes
// them see line_reader.h.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unpacked_stream.h"

namespace hinge::text {

// The whole content; "-" is the standard input. Throws TextError when it cannot be read, is cut short or corrupt, or unpacks to more than
// 64 MiB. An empty file is "".
std::string read_text_file(const std::string& path);

// The lines of a file, one after the other, in bounded memory.
class FileLines {
 public:
  explicit FileLines(const std::string& path);  // throws TextError as read_text_file() does, here and below

  struct Line {
    std::string_view text;  // without its line end, and without a byte order mark at the beginning; until the next call
    bool cut = false;       // it is longer than kLongest; the rest is passed over
  };
  std::optional<Line> next();  // nothing at the end of the file

  const std::string& path() const { return path_; }

  static constexpr size_t kLongest = 4 << 20;

 private:
  bool read_more();

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  UnpackedStream stream_;
  std::string buffer_;
  size_t at_ = 0;  // in buffer_, behind the lines that were given
  bool first_ = true, in_cut_line_ = false;
};

// Whether read_text_file() would unpack that file. False if it cannot be read, and for the standard input.
bool is_packed(const std::string& path);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The lines, without their line ends (\n or \r\n) and without a byte order mark at the beginning. They refer to `content`.
std::vector<std::string_view> split_lines(std::string_view content);

// What is wrong with a line of a file that is not UTF-8: the first bad byte and what to do. Nothing if it is UTF-8.
std::optional<std::string> utf8_problem(std::string_view line);

// Throws TextError if a line is not UTF-8.
void require_utf8(const std::vector<std::string_view>& lines, const std::string& path);

}  // namespace hinge::text
