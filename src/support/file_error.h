// What the system refuses about a file. Unlike a damaged file, it may be there the next time.
#pragma once

#include <stdexcept>
#include <string>

namespace hinge::support {

class FileError : public std::runtime_error {
 public:
  FileError(const std::string& text, int error_number) : std::runtime_error(text), error_number_(error_number) {}
  int error_number() const { return error_number_; }  // of errno

 private:
  int error_number_;
};

}  // namespace hinge::support
