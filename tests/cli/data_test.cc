// `hinge data check` as a user runs it, on files made here. HINGE_COMMAND is the program's path.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "../support/temporary_folder.h"
#include "command.h"

namespace {

class DataCheck : public hinge::support::TemporaryFolderTest {
 protected:
  // Runs the command; what it printed is then in out_ and err_.
  int check(const std::string& arguments) {
    const hinge_command::Result result = hinge_command::run(folder_, "data check " + arguments);
    out_ = result.out, err_ = result.err;
    return result.code;
  }

  // An IDX pair of `count` black images of 2x2 pixels, class 0.
  void write_idx(const std::string& name, char count) const {
    std::filesystem::create_directories(folder_ / "set");
    const std::string zero(3, '\0');
    std::ofstream(folder_ / "set" / (name + "-images-idx3-ubyte"), std::ios::binary)
        << zero.substr(0, 2) << '\x08' << '\x03' << zero << count << zero << '\x02' << zero << '\x02'
        << std::string(4 * static_cast<size_t>(count), '\0');
    std::ofstream(folder_ / "set" / (name + "-labels-idx1-ubyte"), std::ios::binary)
        << zero.substr(0, 2) << '\x08' << '\x01' << zero << count << std::string(static_cast<size_t>(count), '\0');
  }

  std::string set() const { return path("set"); }

  std::string out_, err_;
};

TEST_F(DataCheck, GoodSet) {
  write_idx("train", 5);
  write_idx("t10k", 3);
  EXPECT_EQ(check("--format mnist --path " + set()), 0) << err_;
  for (const char* part : {"train", "test", "images   5", "images   3", "classes  10", "all 2x2", "bad      0"})
    EXPECT_NE(out_.find(part), std::string::npos) << part << " in: " << out_;
  EXPECT_EQ(check("--format mnist --split 'train[:40%]' --json --path " + set()), 0) << err_;
  const nlohmann::json json = nlohmann::json::parse(out_);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["images"], 2);
  EXPECT_EQ(json[0]["sizes"][0]["height"], 2);
}

TEST_F(DataCheck, BadFilesAreNamed) {
  std::filesystem::create_directories(folder_ / "set/cat");
  std::ofstream(folder_ / "set/cat/empty.png");
  EXPECT_EQ(check("--format folder --path " + set()), 1);
  EXPECT_NE(out_.find("cat/empty.png: is empty"), std::string::npos) << out_;
  EXPECT_EQ(check("--format folder --json --path " + set()), 1);
  const nlohmann::json json = nlohmann::json::parse(out_);
  EXPECT_EQ(json[0]["split"], "all");
  EXPECT_TRUE(json[0]["bad"][0]["file"].get<std::string>().ends_with("cat/empty.png"));

  write_idx("train", 5);
  write_idx("t10k", 3);
  std::filesystem::resize_file(folder_ / "set/t10k-images-idx3-ubyte", 20);
  EXPECT_EQ(check("--format mnist --path " + set()), 1);
  EXPECT_NE(out_.find("t10k-images-idx3-ubyte: is cut short"), std::string::npos) << out_;
}

TEST_F(DataCheck, MistakesAreUsageErrors) {
  EXPECT_EQ(check("--format cifar1"), 2);
  EXPECT_NE(err_.find("Did you mean 'cifar10'?"), std::string::npos) << err_;
  EXPECT_EQ(check("--format cifar10"), 2);
  EXPECT_NE(err_.find("--path"), std::string::npos) << err_;
  EXPECT_EQ(check("--format synthetic --split 'train[:x]'"), 2);
  EXPECT_NE(err_.find("train[:x]"), std::string::npos) << err_;
  EXPECT_EQ(check("--format folder --path " + set()), 1);
  EXPECT_NE(err_.find("does not exist"), std::string::npos) << err_;
}

}  // namespace
