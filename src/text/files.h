// Text files into memory: plain, gzip or xz, told apart by their first bytes, not by their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hinge::text {

// The whole content; "-" is the standard input. Throws TextError when it cannot be read, is cut short or corrupt. An empty file is "".
std::string read_text_file(const std::string& path);

// Whether content that begins so is packed; nothing if that takes more bytes to tell.
std::optional<bool> begins_packed(std::string_view begin);

// The content of a file, unpacked if it is packed. `name` is for errors. Throws TextError if it is cut short or corrupt.
std::string unpack(std::string content, const std::string& name);

// Whether read_text_file() would unpack that file. False if it cannot be read, and for the standard input.
bool is_packed(const std::string& path);

// The lines, without their line ends (\n or \r\n) and without a byte order mark at the beginning. They refer to `content`.
std::vector<std::string_view> split_lines(std::string_view content);

// What is wrong with a line of a file that is not UTF-8: the first bad byte and what to do. Nothing if it is UTF-8.
std::optional<std::string> utf8_problem(std::string_view line);

// Throws TextError if a line is not UTF-8.
void require_utf8(const std::vector<std::string_view>& lines, const std::string& path);

}  // namespace hinge::text
