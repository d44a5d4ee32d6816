// A fuzz target: what the product does with bytes from elsewhere. Targets are run by libFuzzer (libfuzzer_main.cc, `make fuzz`) and, on the
// seeds and the cases that were found, by the tests (tests/fuzz).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hinge::fuzz {

using Input = std::span<const uint8_t>;

struct Target {
  const char* name;
  // Takes any bytes. What a reader refuses is a std::runtime_error; any other exception is a finding, as is a crash.
  void (*run)(Input input);
};

const std::vector<Target>& targets();  // all of them

// Runs a target; lets everything through but std::runtime_error.
void run(const Target& target, Input input);

inline std::string_view text_of(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

// Two inputs in one: the first two bytes are the length of the first, low byte first.
inline std::pair<Input, Input> split(Input input) {
  if (input.size() < 2) return {{}, {}};
  const size_t length = input[0] | size_t{input[1]} << 8, there = input.size() - 2, first = length < there ? length : there;
  return {input.subspan(2, first), input.subspan(2 + first)};
}

// A file in memory that readers open by its path. A target keeps one and gives it each input's bytes.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& holding(Input bytes);  // its path

 private:
  int descriptor_ = -1;
  std::string path_;
};

}  // namespace hinge::fuzz
