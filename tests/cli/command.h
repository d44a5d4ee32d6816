// The hinge program as a user runs it. HINGE_COMMAND is its path.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hinge_command {

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Result {
  int code = -1;
  std::string out, err;
};

// What it prints goes through the files "out" and "err" of `folder`. A "<" in the arguments goes before `in`.
inline Result run(const std::filesystem::path& folder, const std::string& arguments, const std::string& in = "/dev/null") {
  const std::filesystem::path out = folder / "out", err = folder / "err";
  const std::string command = std::string(HINGE_COMMAND) + " <" + in + " " + arguments + " >" + out.string() + " 2>" + err.string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

}  // namespace hinge_command
