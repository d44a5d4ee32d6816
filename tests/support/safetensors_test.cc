// Tensors come back as they were written, and every damaged file is refused by name.
#include "support/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "errors.h"
#include "file_size_limit.h"
#include "temporary_folder.h"

namespace hinge::support {
namespace {

class SafetensorsTest : public TemporaryFolderTest {
 protected:
  // A file with this header and some bytes of data.
  void put_raw(const std::string& header, size_t data_bytes) const {
    const uint64_t length = header.size();
    put("raw", std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, 'x'));
  }
  std::string error_of_raw(const std::string& header, size_t data_bytes) const {
    put_raw(header, data_bytes);
    return error_of([&] { SafetensorsFile file(path("raw")); });
  }
};

TEST_F(SafetensorsTest, ReadsWhatItWrote) {
  std::vector<float> weights(48);
  std::iota(weights.begin(), weights.end(), 0.5f);
  const std::vector<int64_t> steps = {7, -8, 1ll << 40};
  const std::vector<uint8_t> mask = {1, 0, 1};
  const double scalar = 0.1;
  write_safetensors(path("t"),
                    {{"mask", Dtype::kU8, {3}, mask.data()},
                     {"steps", Dtype::kI64, {3}, steps.data()},
                     {"empty", Dtype::kF32, {0, 4}, nullptr},
                     {"scalar", Dtype::kF64, {}, &scalar},
                     {"block.0/weights \"ü\"", Dtype::kF32, {4, 12}, weights.data()}},
                    {{"format", "pt"}, {"length rule", "visible"}});
  const SafetensorsFile file(path("t"));
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"length rule", "visible"}}));
  ASSERT_EQ(file.tensors().size(), 5u);
  const TensorView& read = file.at("block.0/weights \"ü\"");
  EXPECT_EQ(read.shape, (std::vector<int64_t>{4, 12}));
  EXPECT_EQ(read.dtype, Dtype::kF32);
  EXPECT_EQ(read.elements(), 48u);
  EXPECT_EQ(std::memcmp(read.data, weights.data(), read.bytes()), 0);
  EXPECT_EQ(std::memcmp(file.at("steps").data, steps.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.at("mask").data, mask.data(), 3), 0);
  EXPECT_EQ(*static_cast<const double*>(file.at("scalar").data), 0.1);
  EXPECT_EQ(file.at("scalar").elements(), 1u);
  EXPECT_EQ(file.at("empty").bytes(), 0u);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_TRUE(mentions(error_of([&] { file.at("maks"); }), {path("t"), "'maks'", "nearest: 'mask'"}));
}

TEST_F(SafetensorsTest, AlignsData) {
  const std::vector<char> data(4096);
  write_safetensors(path("t"), {{"odd", Dtype::kU8, {3}, data.data()},
                                {"a", Dtype::kF32, {16}, data.data()},
                                {"eight", Dtype::kF64, {1}, data.data()},
                                {"half", Dtype::kF16, {5}, data.data()},
                                {"b", Dtype::kU8, {640}, data.data()}});
  const SafetensorsFile file(path("t"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.tensors()[0].data) % 64, 0u);
  for (const TensorView& tensor : file.tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % (tensor.bytes() % 64 == 0 ? 64 : size_of(tensor.dtype)), 0u) << tensor.name;
}

TEST_F(SafetensorsTest, RefusesNamesItCannotStore) {
  const float value = 1;
  const TensorView tensor{"a", Dtype::kF32, {1}, &value};
  EXPECT_TRUE(mentions(error_of([&] { write_safetensors(path("t"), {tensor, tensor}); }), {path("t"), "'a'", "twice"}));
  EXPECT_NE(error_of([&] { write_safetensors(path("t"), {{"__metadata__", Dtype::kF32, {1}, &value}}); }), "");
  EXPECT_NE(error_of([&] { write_safetensors(path("t"), {{"a", Dtype::kF32, {-1}, &value}}); }), "");
  EXPECT_EQ(files(), 0u);
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::vector<float> data(10, 1.0f);
  write_safetensors(path("t"), {{"a", Dtype::kF32, {10}, data.data()}, {"b", Dtype::kF32, {2, 5}, data.data()}});
  const std::string whole = content("t");
  for (size_t size = 0; size < whole.size(); ++size) {
    put("cut", whole.substr(0, size));
    EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile file(path("cut")); }), {path("cut")})) << size;
  }
  put("long", whole + "x");
  EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile file(path("long")); }), {"1 bytes at its end"}));
}

TEST_F(SafetensorsTest, SurvivesRandomDamage) {
  const std::vector<float> data(32, 1.0f);
  write_safetensors(path("t"), {{"a", Dtype::kF32, {16}, data.data()}, {"b", Dtype::kF32, {4, 4}, data.data()}}, {{"k", "v"}});
  const std::string whole = content("t");
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    for (int change = 0; change < 3; ++change) damaged[random() % (whole.size() - 128)] = static_cast<char>(random());
    std::filesystem::remove(path("damaged"));  // ext4 flushes a file that is truncated and written again
    put("damaged", damaged);
    try {
      const SafetensorsFile file(path("damaged"));
      size_t bytes = 0;
      for (const TensorView& tensor : file.tensors()) bytes += tensor.bytes();
      EXPECT_LE(bytes, whole.size());
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(mentions(error.what(), {path("damaged")}));
    }
  }
}

// Whichever bit of a file changes, no tensor comes back with another name, type, shape or value.
TEST_F(SafetensorsTest, FindsEveryFlippedBit) {
  std::vector<float> data(24);
  std::iota(data.begin(), data.end(), 0.25f);
  write_safetensors(path("t"), {{"a", Dtype::kF32, {2, 4}, data.data()}, {"b", Dtype::kF32, {16}, data.data() + 8}}, {{"format", "pt"}});
  const std::string whole = content("t");
  EXPECT_NE(whole.find(R"("crc32c.a":")"), std::string::npos);
  EXPECT_TRUE(SafetensorsFile(path("t")).has_checksums());
  size_t found = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    std::filesystem::remove(path("flipped"));
    put("flipped", flipped);
    try {
      const SafetensorsFile file(path("flipped"));
      ASSERT_EQ(file.tensors().size(), 2u) << bit;
      const TensorView &a = file.at("a"), &b = file.at("b");
      ASSERT_TRUE(a.dtype == Dtype::kF32 && b.dtype == Dtype::kF32) << bit;
      ASSERT_EQ(a.shape, (std::vector<int64_t>{2, 4})) << bit;
      ASSERT_EQ(b.shape, (std::vector<int64_t>{16})) << bit;
      ASSERT_EQ(std::memcmp(a.data, data.data(), 32) | std::memcmp(b.data, data.data() + 8, 64), 0) << bit;
    } catch (const std::runtime_error& error) {
      ++found;
      ASSERT_TRUE(mentions(error.what(), {path("flipped")}));
    }
  }
  EXPECT_GE(found, 8 * (whole.size() - 20)) << "only those of \"format\" and \"pt\" change nothing";
  std::string flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  put("flipped", flipped);
  EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile file(path("flipped")); }), {"is damaged: tensor 'a' has the checksum"}));
  EXPECT_NO_THROW(SafetensorsFile(path("flipped"), Verify::header));
}

TEST_F(SafetensorsTest, RefusesHeadersThatTakeTooMuch) {
  EXPECT_TRUE(mentions(error_of_raw(std::string(100'000'000, '['), 0), {path("raw"), "100000000 bytes", "allowed"}));
  EXPECT_TRUE(mentions(error_of_raw(std::string(8'000'000, '['), 0), {path("raw"), "nested"}));
  std::string many = "{";
  while (many.size() < 8'000'000) many += "\"" + std::to_string(many.size()) + "\":0,";
  EXPECT_TRUE(mentions(error_of_raw(many + "\"x\":0}", 0), {path("raw"), "tensor '1'"}));
}

TEST_F(SafetensorsTest, NamesFileTensorAndReason) {
  const auto a = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return fmt::format(R"("a":{{"dtype":{},"shape":{},"data_offsets":{}}})", dtype, shape, offsets);
  };
  const auto braces = [](const std::string& inner) { return fmt::format("{{{}}}", inner); };
  EXPECT_EQ(error_of_raw(braces(a("\"F32\"", "[2]", "[0,8]")), 8), "");
  EXPECT_EQ(error_of_raw("{}", 0), "");
  const std::string file = path("raw");
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "[3]", "[0,8]")), 8), {file, "'a'", "cannot have 8 bytes"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "[2]", "[0,8]")), 7), {file, "'a'", "only 7"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "[2]", "[8,0]")), 8), {file, "'a'"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"Q4\"", "[2]", "[0,8]")), 8), {file, "'a'", "Q4"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "[-2]", "[0,8]")), 8), {file, "'a'", "-2"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "[4294967296,4294967296]", "[0,0]")), 0), {file, "'a'"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "2", "[0,8]")), 8), {file, "'a'", "'shape'"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(a("\"F32\"", "[2]", "[0]")), 8), {file, "'a'", "data_offsets"}));
  EXPECT_TRUE(mentions(error_of_raw("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4), {file, "'a'", "dtype"}));
  EXPECT_TRUE(mentions(error_of_raw("{\"a\":3}", 4), {file, "'a'"}));
  const std::string one = a("\"F32\"", "[1]", "[0,4]"), b = "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":";
  EXPECT_TRUE(mentions(error_of_raw(braces(one + "," + one), 4), {file, "'a'", "twice"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(one + "," + b + "[2,6]}"), 6), {file, "'b' overlaps 'a'"}));
  EXPECT_TRUE(mentions(error_of_raw(braces(one + "," + b + "[8,12]}"), 12), {file, "gap before tensor 'b'"}));
  EXPECT_TRUE(mentions(error_of_raw("[1]", 0), {file, "not a JSON object"}));
  EXPECT_TRUE(mentions(error_of_raw("{\"a\":", 0), {file, "not JSON"}));
  EXPECT_TRUE(mentions(error_of_raw("{\"__metadata__\":{\"k\":1}}", 0), {file, "'k'"}));
  put("raw", std::string(8, '\xff') + "{}");
  EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile opened(file); }), {file, "header"}));
  EXPECT_TRUE(mentions(error_of([&] { SafetensorsFile opened(folder_.string()); }), {"not an ordinary file"}));
}

TEST_F(SafetensorsTest, KeepsTheOldFileWhenTheDiskIsFull) {
  const std::vector<float> data(4096, 1.0f);
  write_safetensors(path("t"), {{"a", Dtype::kF32, {16}, data.data()}});
  {
    const FileSizeLimit limit(4096);
    const std::string message = error_of([&] { write_safetensors(path("t"), {{"a", Dtype::kF32, {4096}, data.data()}}); });
    EXPECT_TRUE(mentions(message, {path("t"), "File too large"}));
  }
  EXPECT_EQ(SafetensorsFile(path("t")).at("a").elements(), 16u);
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace hinge::support
