// Every fuzz target on its seeds and on the cases that fuzzing has found. HINGE_SOURCE is the folder of the sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "target.h"

namespace hinge::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::exists(folder))
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

const std::vector<Target>& targets() {
#define X(name) target_##name,
  static const std::vector<Target> all = {HINGE_FUZZ_TARGETS(X)};
#undef X
  return all;
}

class CasesTest : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, CasesTest, testing::ValuesIn(targets()), [](const auto& given) { return std::string(given.param.name); });

TEST_P(CasesTest, AreTakenOrRefused) {
  const fs::path folder = fs::path(HINGE_SOURCE) / "fuzz";
  int seeds = 0;
  for (const char* kind : {"seeds", "cases"})
    for (const fs::path& file : files_in(folder / kind / GetParam().name)) {
      SCOPED_TRACE(file.string());
      std::ifstream stream(file, std::ios::binary);
      const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
      EXPECT_NO_THROW(run(GetParam(), bytes));
      ++seeds;
      // And as a cut and a damaged one.
      EXPECT_NO_THROW(run(GetParam(), Input(bytes).first(bytes.size() / 2)));
      std::vector<uint8_t> damaged = bytes;
      for (size_t i = bytes.size() / 3; i < bytes.size(); i += 97) damaged[i] ^= 0x10;
      EXPECT_NO_THROW(run(GetParam(), damaged));
    }
  EXPECT_GT(seeds, 0) << "a target without seeds";
}

}  // namespace
}  // namespace hinge::fuzz
