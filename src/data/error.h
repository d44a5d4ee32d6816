// An error in the data themselves: a file that is missing, empty, cut short or corrupt.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace hinge::data {

struct DataError : std::runtime_error {
  // `file` may also be "file #index". The message is "file: problem".
  DataError(const std::string& file, const std::string& problem)
      : std::runtime_error(fmt::format("{}: {}", file, problem)), file(file), problem(problem) {}

  std::string file, problem;
};

// A decoded image that cannot be preprocessed. Whoever knows its file makes a DataError of it.
struct ImageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace hinge::data
