// Whole files into memory, and text files into lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hinge::data {

// Both throw DataError when the file cannot be read or is empty.
std::vector<uint8_t> read_bytes(const std::string& path);
std::vector<uint8_t> read_maybe_gzipped(const std::string& path);  // a file that is not gzip is read as it is

// Lines without their line ends (\n or \r\n) and without empty ones at the end of the file.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace hinge::data
