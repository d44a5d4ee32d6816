// Small files that would fill the memory or the stack: each ends in an error that names the file, and takes little of both. HINGE_COMMAND
// is the program's path.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>

#include <fstream>
#include <functional>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "../text/writers.h"
#include "command.h"

namespace {

using hinge::support::mentions;

class BombTest : public hinge::support::TemporaryFolderTest {
 protected:
  // hinge with these arguments fails with an error that holds all the parts, in less than 400 MB. A loop without an end is ended by the
  // system.
  void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) const {
    std::vector<std::string> words = arguments;
    const std::string out = path("out"), err = path("err");
    const auto limit = [] {
      const rlimit seconds{60, 60}, none{0, 0};
      ::setrlimit(RLIMIT_CPU, &seconds);
      ::setrlimit(RLIMIT_CORE, &none);
    };
    std::vector<char*> pointers;
    words.insert(words.begin(), HINGE_COMMAND);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      limit();
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    int status = 0;
    rusage used{};
    ASSERT_EQ(::wait4(child, &status, 0, &used), child);
    const std::string said = content("err") + content("out");
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << ": " << arguments[0];
    EXPECT_EQ(WEXITSTATUS(status), 1) << said;
    EXPECT_TRUE(mentions(said, parts));
    EXPECT_LT(said.size(), 2000u) << said;
    EXPECT_LT(used.ru_maxrss, 400'000) << "kilobytes, for " << parts[0];
    fmt::print("{}: {} MB, {:.2f} s of processor time\n", parts[0], used.ru_maxrss / 1000,
               static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) * 1e-6);
  }
};

// Packed streams may follow one another: a stream of 16 MiB, many times.
std::string repeated(const std::string& packed, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += packed;
  return all;
}

TEST_F(BombTest, PackedText) {
  const std::string zeros(16 << 20, '\0'), unit_xz = hinge::text::xzipped(zeros), unit_gz = hinge::text::gzipped(zeros);
  put("bomb.xz", repeated(unit_xz, 256));  // 4 GiB
  put("bomb.gz", repeated(unit_gz, 256));
  put("train.en.xz", repeated(unit_xz, 256));
  put("train.de.xz", repeated(unit_xz, 256));
  put("valid.en", "one\n"), put("valid.de", "eins\n");
  put("few", "one\n");
  EXPECT_LT(unit_xz.size() * 256, 2u << 20) << "small";
  for (const char* name : {"bomb.xz", "bomb.gz"})
    expect_refused({"score", path(name), path("few")}, {path(name), "unpacks to more than 64 MiB"});
  put("text.toml", fmt::format("task = \"translation\"\n[data]\nkind = \"files\"\npair = \"en-de\"\npath = \"{}\"\n", folder_.string()));
  expect_refused({"train", path("text.toml"), "--out", path("run")}, {path("train.en.xz") + ":1", "longer than 4 MiB"});
}

TEST_F(BombTest, XzThatAsksForAllMemory) {
  // The size of the dictionary is in the header of the block, which has a checksum of its own.
  std::string packed = hinge::text::xzipped("text\n");
  const size_t filter = packed.find(std::string("\x21\x01", 2), 12);  // LZMA2, one byte of properties
  ASSERT_LT(filter, 24u);
  packed[filter + 2] = 36;  // 1 GiB
  const size_t header = (static_cast<unsigned char>(packed[12]) + 1) * 4;
  const uint32_t crc = lzma_crc32(reinterpret_cast<const uint8_t*>(packed.data()) + 12, header - 4, 0);
  for (size_t i = 0; i < 4; ++i) packed[12 + header - 4 + i] = static_cast<char>(crc >> 8 * i);
  put("greedy.xz", packed);
  put("few", "one\n");
  expect_refused({"score", path("greedy.xz"), path("few")}, {path("greedy.xz"), "MiB of memory to unpack"});
}

TEST_F(BombTest, PngOfTwoToTheThirtyOnePixels) {
  const auto word = [](uint32_t value) {
    std::string bytes;
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const auto chunk = [&](const std::string& type, const std::string& data) {
    const std::string both = type + data;
    return word(static_cast<uint32_t>(data.size())) + both +
           word(static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(both.data()), static_cast<uInt>(both.size()))));
  };
  const std::string magic = "\x89PNG\r\n\x1a\n";
  const auto header = [&](uint32_t width, uint32_t height) {
    return magic + chunk("IHDR", word(width) + word(height) + std::string("\x01\x00\x00\x00\x00", 5));
  };
  const std::string end = chunk("IDAT", "") + chunk("IEND", "");
  put("set/cat/bomb.png", header(65536, 32768) + end);
  expect_refused({"data", "check", "--format", "folder", "--path", path("set")}, {"bomb.png", "claims 32768x65536 pixels"});
  put("set/cat/bomb.png", header(0x7FFFFFFF, 0x7FFFFFFF) + end);
  expect_refused({"data", "check", "--format", "folder", "--path", path("set")}, {"bomb.png", "2147483647"});
  // As many pixels as are allowed, in a few kilobytes: a picture, if the rows were there.
  put("set/cat/bomb.png", header(8192, 8192) + end);
  expect_refused({"data", "check", "--format", "folder", "--path", path("set")}, {"bomb.png", "PNG"});
}

TEST_F(BombTest, TomlNestedTenThousandDeepOrOfOneLongName) {
  constexpr int kDeep = 10'000;
  const auto times = [](const char* text, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += text;
    return all;
  };
  const std::vector<std::pair<std::string, std::string>> bombs = {
      {"lists", "x = " + times("[", kDeep) + times("]", kDeep)},
      {"tables", "x = " + times("{a = ", kDeep) + "1" + times("}", kDeep)},
      {"key", times("a.", kDeep) + "a = 1"},
      {"header", "[" + times("a.", kDeep) + "a]"},
      {"long-header", "[" + times("a.", 1'000'000) + "a]"},
      {"long-lists", "x = " + times("[", 3'000'000)},
      {"long-key", times("k", 3'000'000) + " = 1"},
      {"long-value", "optim.lr = \"" + times("\\u001b[2J", 300'000) + "\""},
  };
  for (const auto& [name, text] : bombs) {
    put(name + ".toml", "task = \"vision\"\n" + text + "\n");
    expect_refused({"train", path(name + ".toml"), "--out", path("run")}, {path(name + ".toml:2")});
    EXPECT_EQ(content("err").find('\x1b'), std::string::npos);
    expect_refused({"sweep", path(name + ".toml")}, {path(name + ".toml")});
  }
}

TEST_F(BombTest, SafetensorsHeaderOfAHundredMegabytes) {
  const auto put_header = [&](const std::string& header, uint64_t length) {
    put("w.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header);
  };
  const auto expect = [&](const std::string& part) {
    expect_refused({"weights", "import", path("w.safetensors"), "--config", HINGE_CONFIGS "/vit/demo.toml", "--out", path("run")},
                   {path("w.safetensors"), part});
  };
  put_header(std::string(100'000'000, ' '), 100'000'000);
  expect("100000000 bytes");
  put_header(std::string(8'000'000, '['), 8'000'000);
  expect("nested");
  std::string many = "{";
  while (many.size() < 8'000'000) many += fmt::format("\"{:x}\":{{}},", many.size());
  many += "\"x\":{}}";
  put_header(many, many.size());
  expect("tensor '1'");
}

}  // namespace
