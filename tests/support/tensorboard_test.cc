// Event files are well-formed records, read here byte by byte as the format says.
#include "support/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "errors.h"
#include "support/crc32c.h"
#include "temporary_folder.h"

namespace hinge::support {
namespace {

class TensorboardTest : public TemporaryFolderTest {
 protected:
  // The messages of a file; fails on a wrong checksum or length.
  std::vector<std::string> messages(const std::string& file) const {
    const std::string text = content(std::filesystem::path(file).filename().string());
    std::vector<std::string> found;
    const auto check = [](std::string_view bytes, const char* stored) {
      uint32_t masked = 0;
      std::memcpy(&masked, stored, 4);
      const uint32_t turned = masked - 0xA282EAD8u;
      EXPECT_EQ((turned << 15) | (turned >> 17), crc32c(bytes));
    };
    for (size_t at = 0; at < text.size();) {
      uint64_t length = 0;
      std::memcpy(&length, &text[at], 8);
      check({&text[at], 8}, &text[at + 8]);
      found.push_back(text.substr(at + 12, length));
      check(found.back(), &text[at + 12 + length]);
      at += 16 + length;
    }
    return found;
  }
};

TEST_F(TensorboardTest, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
}

TEST_F(TensorboardTest, WritesScalars) {
  EventWriter writer(folder_.string(), 0);
  writer.scalars(300, {{"train/loss", 0.5}, {"lr", -2}});
  const std::vector<std::string> found = messages(writer.path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].substr(9),
            "\x1A\x0D"
            "brain.Event:2");
  // wall time, step 300 as varint, then the summary with two values.
  const std::string loss = std::string("\x0A\x11\x0A\x0A", 4) + "train/loss" + std::string("\x15\x00\x00\x00\x3F", 5);
  const std::string lr = std::string("\x0A\x09\x0A\x02", 4) + "lr" + std::string("\x15\x00\x00\x00\xC0", 5);
  EXPECT_EQ(found[1].substr(9), std::string("\x10\xAC\x02\x2A\x1E", 5) + loss + lr);
}

TEST_F(TensorboardTest, ResumingBeginsAnotherFileThatForgetsLaterSteps) {
  const EventWriter first(folder_.string(), 0), second(folder_.string(), 7), again(folder_.string(), 0);
  EXPECT_NE(first.path(), second.path());
  EXPECT_LT(first.path(), second.path());
  EXPECT_EQ(messages(first.path()).size(), 1u);
  const auto restart = [&](const EventWriter& writer) {
    const std::vector<std::string> found = messages(writer.path());
    return found.size() == 2 ? found[1].substr(9) : "";
  };
  EXPECT_EQ(restart(second), std::string("\x10\x08\x3A\x02\x08\x01", 6));
  EXPECT_EQ(restart(again), std::string("\x10\x01\x3A\x02\x08\x01", 6)) << "a run that was killed before its first checkpoint";
  EXPECT_TRUE(mentions(error_of([&] { EventWriter writer(path("none"), 0); }), {"none/events", "No such file"}));
}

}  // namespace
}  // namespace hinge::support
