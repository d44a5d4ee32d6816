// The configs that come with the program: every file is understood, and the smoke test that the head of a full-size one names works.
// HINGE_COMMAND is the program's path, HINGE_CONFIGS the folder.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

class Configs : public testing::Test {
 protected:
  Configs() {
    std::string name = (fs::temp_directory_path() / "hinge-configs-XXXXXX").string();
    if (::mkdtemp(name.data())) folder_ = name;
  }
  ~Configs() override { fs::remove_all(folder_); }

  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string said() const { return read(folder_ / "said"); }
  int run(const std::string& arguments) const {
    const int status = std::system((std::string(HINGE_COMMAND) + " " + arguments + " >" + (folder_ / "said").string() + " 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path folder_;
};

TEST_F(Configs, AreUnderstoodAndSayHowToRunThem) {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(HINGE_CONFIGS)) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const std::string file = entry.path().string();
    EXPECT_EQ(run("train '" + file + "' --help-config"), 0) << file << ": " << said();
    const std::string name = "configs/" + fs::relative(entry.path(), HINGE_CONFIGS).string();
    EXPECT_NE(read(entry.path()).find("hinge train " + name), std::string::npos) << file << ": its head does not have its command";
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
  ASSERT_EQ(run(command + " --out " + (folder_ / "run").string()), 0) << said();
  EXPECT_NE(said().find("Done"), std::string::npos) << said();
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
