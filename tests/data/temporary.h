// A folder for a test's files, removed at its end, and the writing of files into it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace hinge::data {

using Bytes = std::vector<uint8_t>;

class Temporary {
 public:
  Temporary() {
    std::string name = (std::filesystem::temp_directory_path() / "hinge-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~Temporary() { std::filesystem::remove_all(folder_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? folder_.string() : (folder_ / name).string(); }

  std::string write(const std::string& name, const Bytes& bytes) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }
  std::string write(const std::string& name, const std::string& text) const { return write(name, Bytes(text.begin(), text.end())); }

 private:
  std::filesystem::path folder_;
};

// Runs f, which must throw, and returns what the error says.
template <typename F> std::string error_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

#define EXPECT_ERROR(expression, ...)                                                                                \
  do {                                                                                                               \
    const std::string said = error_of([&] { static_cast<void>(expression); });                                       \
    for (const char* part : {__VA_ARGS__}) EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said; \
  } while (false)

}  // namespace hinge::data
