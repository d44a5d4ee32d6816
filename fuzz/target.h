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
  // Puts right what a reader would refuse before it looks at anything else, a checksum for example; null: there is nothing such. Half of
  // the inputs that libFuzzer makes go through it.
  void (*mend)(std::span<uint8_t> input) = nullptr;
};

// One for each file of targets/.
#define HINGE_FUZZ_TARGETS(X) \
  X(cifar)                    \
  X(config)                   \
  X(http) X(idx) X(image) X(metrics) X(mo) X(packed) X(parallel) X(po) X(run) X(safetensors) X(sentencepiece) X(sweep) X(sweep_results)
#define X(name) extern const Target target_##name;
HINGE_FUZZ_TARGETS(X)
#undef X

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

// A folder in memory, where the system has such a place. A target keeps one and changes the files in it.
class MemoryFolder {
 public:
  MemoryFolder();
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? folder_ : folder_ + "/" + name; }
  void put(const std::string& name, std::string_view bytes) const;  // folders on the way are made

 private:
  std::string folder_;
};

}  // namespace hinge::fuzz
