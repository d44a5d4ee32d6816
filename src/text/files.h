// Text files into memory: plain, gzip or xz, told apart by their first bytes, not by their names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hinge::text {

// The whole content; "-" is the standard input. Throws TextError when it cannot be read, is cut short or corrupt. An empty file is "".
std::string read_text_file(const std::string& path);

// Whether read_text_file() would unpack that file. False if it cannot be read, and for the standard input.
bool is_packed(const std::string& path);

// The lines, without their line ends (\n or \r\n) and without a byte order mark at the beginning. They refer to `content`.
std::vector<std::string_view> split_lines(std::string_view content);

// Throws TextError if a line is not UTF-8: the line, the byte in it and its value.
void require_utf8(const std::vector<std::string_view>& lines, const std::string& path);

}  // namespace hinge::text
