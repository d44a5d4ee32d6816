// `hinge score` as a user runs it. HINGE_COMMAND is the program's path.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "../support/temporary_folder.h"
#include "command.h"

namespace {

class Score : public hinge::support::TemporaryFolderTest {
 protected:
  Score() {
    put("hyp", "The cat sat on a mat.\n\nHe left.\n");
    put("ref", "The cat sat on the mat.\n\nHe has left.\n");
  }

  // Runs the command; what it printed is then in out_ and err_.
  int score(const std::string& arguments) {
    const hinge_command::Result result = hinge_command::run(folder_, "score " + arguments);
    out_ = result.out, err_ = result.err;
    return result.code;
  }

  std::string out_, err_;
};

TEST_F(Score, TextAndJson) {
  ASSERT_EQ(score(path("hyp") + " " + path("ref")), 0) << err_;
  EXPECT_EQ(out_.find("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:hinge-"), 0u) << out_;
  EXPECT_NE(out_.find("\nchrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:hinge-"), std::string::npos) << out_;
  EXPECT_NE(out_.find("hyp_len = 10 ref_len = 11)\n"), std::string::npos) << out_;
  const std::string text = out_;

  ASSERT_EQ(score("- " + path("ref") + " --metric bleu,chrf++ --json < " + path("hyp")), 0) << err_;
  const nlohmann::json json = nlohmann::json::parse(out_);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["name"], "BLEU");
  EXPECT_EQ(json[1]["name"], "chrF2++");
  EXPECT_EQ(json[0]["totals"], (std::vector<int>{10, 8, 6, 4}));
  EXPECT_GT(json[0]["score"], 30);

  ASSERT_EQ(score(path("hyp") + " " + path("ref") + " --document --metric bleu"), 0) << err_;
  EXPECT_NE(out_.find("|unit:document|"), std::string::npos) << out_;
}

TEST_F(Score, BadFiles) {
  put("short", "The cat sat.\n");
  EXPECT_EQ(score(path("short") + " " + path("ref")), 1);
  EXPECT_NE(err_.find("short: has 1 lines, " + path("ref") + " has 3"), std::string::npos) << err_;
  put("latin", "a\nf\xFCnf\nb\n");
  EXPECT_EQ(score(path("latin") + " " + path("ref")), 1);
  EXPECT_NE(err_.find("latin:2: is not UTF-8"), std::string::npos) << err_;
  EXPECT_EQ(score(path("absent") + " " + path("ref")), 1);
  EXPECT_NE(err_.find("absent: cannot be read"), std::string::npos) << err_;
  put("empty", "");
  EXPECT_EQ(score(path("empty") + " " + path("empty")), 1);
  EXPECT_NE(err_.find("is empty"), std::string::npos) << err_;
  put("shifted", "The cat sat on a mat.\nHe left.\n\n");
  EXPECT_EQ(score(path("shifted") + " " + path("ref") + " --document"), 1);
  EXPECT_NE(err_.find("line 2"), std::string::npos) << err_;
}

TEST_F(Score, Mistakes) {
  EXPECT_EQ(score("- -"), 2);
  EXPECT_NE(err_.find("standard input"), std::string::npos) << err_;
  EXPECT_EQ(score(path("hyp") + " " + path("ref") + " --metric blue"), 2);
  EXPECT_NE(err_.find("Did you mean 'bleu'?"), std::string::npos) << err_;
  EXPECT_EQ(score(path("hyp")), 2);
}

}  // namespace
