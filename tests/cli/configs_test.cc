// The configs that come with the program: every file is understood, and the smoke test that the head of a full-size one names works.
// HINGE_CONFIGS is their folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "../support/temporary_folder.h"
#include "command.h"

namespace {

namespace fs = std::filesystem;

class Configs : public hinge::support::TemporaryFolderTest {};

TEST_F(Configs, AreUnderstoodAndSayHowToRunThem) {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(HINGE_CONFIGS)) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const std::string file = entry.path().string();
    const hinge_command::Result result = hinge_command::run(folder_, "train '" + file + "' --help-config");
    EXPECT_EQ(result.code, 0) << file << ": " << result.err;
    const std::string name = "configs/" + fs::relative(entry.path(), HINGE_CONFIGS).string();
    EXPECT_NE(hinge_command::read_file(entry.path()).find("hinge train " + name), std::string::npos) << file << ": its head does not have its command";
  }
  EXPECT_GE(files, 18u);
}

// The line of the config's head that trains on made-up images.
std::string smoke_test_of(const fs::path& config) {
  std::ifstream text(config);
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("#   hinge train ") && line.find("data.format=synthetic") != std::string::npos) return line.substr(10);
  return {};
}

TEST_F(Configs, TheSmokeTestOfTheSmallestFullSizeModelWorks) {
  std::string command = smoke_test_of(fs::path(HINGE_CONFIGS) / "vit/i1k_s32.toml");
  const std::string relative = "configs/vit/i1k_s32.toml";
  ASSERT_NE(command.find(relative), std::string::npos);
  command.replace(command.find(relative), relative.size(), "'" + (fs::path(HINGE_CONFIGS) / "vit/i1k_s32.toml").string() + "'");
  const hinge_command::Result result = hinge_command::run(folder_, command + " --out " + path("run"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("Done"), std::string::npos) << result.out;
  // The others name the same one.
  for (const auto& entry : fs::directory_iterator(fs::path(HINGE_CONFIGS) / "vit")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("i1k_") && !name.starts_with("i21k_")) continue;
    std::string expected = smoke_test_of(fs::path(HINGE_CONFIGS) / "vit/i1k_s32.toml");
    expected.replace(expected.find("i1k_s32.toml"), 12, name);
    EXPECT_EQ(smoke_test_of(entry.path()), expected);
  }
}

}  // namespace
