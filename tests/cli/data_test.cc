// `hinge data` as a user runs it, on files made here. HINGE_COMMAND is the program's path, HINGE_CONFIGS the folder of the configs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../support/temporary_folder.h"
#include "../text/writers.h"
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
  std::ofstream(folder_ / "set/cat/empty.png").close();
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

using Lines = std::vector<std::string>;

// Trained in no time.
const std::string kTinyModel = R"(
task = "translation"
[model]
width = 16
ffn.width = 16
heads = 2
depth = 1
max_length = 40
[optim]
batch = 600
steps = 2
[train]
threads = 1
)";

class DataExport : public hinge::support::TemporaryFolderTest {
 protected:
  // Runs a command; what it printed is then in out_ and err_.
  int hinge(const std::string& arguments) {
    const hinge_command::Result result = hinge_command::run(folder_, arguments);
    out_ = result.out, err_ = result.err;
    return result.code;
  }
  bool complains(const std::string& part) const { return err_.find(part) != std::string::npos; }

  Lines lines(const std::string& name) const {
    Lines all;
    std::istringstream text(content(name));
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }

  // `data`: further keys of [data].
  void put_config(const std::string& kind, const std::string& data, int pieces = 50) const {
    put("config.toml", kTinyModel + "[data]\npair = \"en-de\"\nlongest_tokens = 40\nkind = \"" + kind + "\"\npath = \"" + path("text") +
                           "\"\n" + data + "[data.vocabulary]\nsize = " + std::to_string(pieces) + "\n");
  }

  // 156 messages "word ab", "Wort ba"; of other letters in another catalogue.
  void put_catalogue(const std::string& name, char first, char last) const {
    std::vector<std::pair<std::string, std::string>> messages = {{"", "Content-Type: text/plain; charset=UTF-8\n"}};
    for (char a = 'a'; a <= 'z'; ++a)
      for (char b = first; b <= last; ++b) messages.emplace_back(std::string("word ") + a + b, std::string("Wort ") + b + a);
    put("text/de/LC_MESSAGES/" + name + ".mo", hinge::text::mo_file(messages));
  }

  std::string out_, err_;
};

TEST_F(DataExport, ATestSplitOfCataloguesIsTranslatedAndScored) {
  put_catalogue("one", 'a', 'f');
  put_catalogue("two", 'g', 'l');
  put_config("catalogues", "held_out = 0.2\n");
  ASSERT_EQ(hinge("train " + path("config.toml") + " --out " + path("run")), 0) << err_;
  ASSERT_EQ(hinge("data export " + path("run") + " --out " + path("test")), 0) << err_;
  const Lines en = lines("test.en"), de = lines("test.de");
  ASSERT_GT(en.size(), 10u);
  ASSERT_EQ(en.size(), de.size());
  for (size_t i = 0; i < en.size(); ++i) EXPECT_EQ(de[i], std::string("Wort ") + en[i][6] + en[i][5]) << en[i];
  EXPECT_NE(out_.find(std::to_string(en.size()) + " pairs of 2 documents"), std::string::npos) << out_;
  EXPECT_FALSE(complains("trained on")) << err_;

  ASSERT_EQ(hinge("translate " + path("run") + " " + path("test.en") + " --out " + path("hyp")), 0) << err_;
  EXPECT_EQ(hinge("score " + path("hyp") + " " + path("test.de")), 0) << err_;

  // The config has the same split, and the three parts are the whole, each message once.
  ASSERT_EQ(hinge("data export " + path("config.toml") + " --split test --out " + path("again")), 0) << err_;
  EXPECT_EQ(lines("again.en"), en);
  std::set<std::string> all(en.begin(), en.end());
  size_t count = en.size();
  for (const char* part : {"train", "valid"}) {
    ASSERT_EQ(hinge("data export " + path("run") + " --split " + part + " --out " + path(part)), 0) << err_;
    const Lines more = lines(std::string(part) + ".en");
    all.insert(more.begin(), more.end()), count += more.size();
  }
  EXPECT_EQ(count, 312u);
  EXPECT_EQ(all.size(), count);

  // Nothing is replaced, and a split that is not that of the training is not passed off as it.
  const std::string before = content("test.en");
  EXPECT_EQ(hinge("data export " + path("run") + " --split valid --out " + path("test")), 1);
  EXPECT_TRUE(complains("test.en' already exists")) << err_;
  EXPECT_EQ(content("test.en"), before);
  EXPECT_EQ(hinge("data export " + path("run") + " --set data.held_out=0.2 --out " + path("larger")), 0) << err_;
  EXPECT_TRUE(complains("with --set the split may be another") && !complains("not those")) << err_;
  put_catalogue("three", 'm', 'p');
  EXPECT_EQ(hinge("data export " + path("run") + " --out " + path("later")), 0) << err_;
  EXPECT_TRUE(complains("not those that " + path("run") + " was trained on")) << err_;
}

TEST_F(DataExport, DocumentsOfFilesAndWhatAModelCannotRead) {
  const std::string en = "one two\nthree\n\nfour five six\n", de = "eins zwei\ndrei\n\nvier fuenf sechs\n";
  std::string words;
  for (int i = 0; i < 60; ++i) words += i % 2 == 0 ? "one " : "two ";
  for (const char* part : {"train", "valid"})
    for (const auto& [language, text] : {std::pair("en", en), std::pair("de", de)}) {
      std::string many;
      for (int i = 0; i < 30; ++i) many += text + "\n";
      put(std::string("text/") + part + "." + language, many);
    }
  put("text/test.en", en + words + "\n"), put("text/test.de", de + "zu lang\n");
  put_config("files", "document_tokens = 30\n", 30);
  ASSERT_EQ(hinge("data export " + path("config.toml") + " --out " + path("all")), 0) << err_;
  EXPECT_EQ(content("all.en"), en + words.substr(0, words.size() - 1) + "\n");
  EXPECT_EQ(content("all.de"), de + "zu lang\n");
  ASSERT_EQ(hinge("data export " + path("config.toml") + " --set data.document_tokens=0 --out " + path("lines")), 0) << err_;
  EXPECT_EQ(lines("lines.en").size(), 4u) << "sentences that stand alone have no documents";

  ASSERT_EQ(hinge("train " + path("config.toml") + " --out " + path("run")), 0) << err_;
  ASSERT_EQ(hinge("data export " + path("run") + " --out " + path("test")), 0) << err_;
  EXPECT_EQ(content("test.en"), en);
  EXPECT_EQ(content("test.de"), de);
  EXPECT_TRUE(complains("1 longer than the model reads")) << err_;
  ASSERT_EQ(hinge("translate " + path("run") + " " + path("test.en") + " --document --out " + path("hyp")), 0) << err_;
  EXPECT_EQ(hinge("score " + path("hyp") + " " + path("test.de") + " --document"), 0) << err_;
}

TEST_F(DataExport, TheConfigOfMessagesPassesOverBadCatalogues) {
  put_catalogue("one", 'a', 'z');
  put("text/de/LC_MESSAGES/bad.mo", "this is none");
  const std::string command = "data export '" HINGE_CONFIGS "/translation/messages.toml' --set data.path=" + path("text");
  ASSERT_EQ(hinge(command + " --out " + path("test")), 0) << err_;
  EXPECT_TRUE(complains("1 catalogues that cannot be read")) << err_;
  EXPECT_FALSE(lines("test.en").empty());
  EXPECT_EQ(hinge(command + " --set data.on_error=stop --out " + path("other")), 1);
  EXPECT_TRUE(complains("bad.mo: is no .mo file")) << err_;
  EXPECT_TRUE(complains("data.on_error=skip leaves such catalogues out")) << err_;
  EXPECT_FALSE(std::filesystem::exists(path("other.en")));
}

TEST_F(DataExport, Mistakes) {
  put_config("files", "");
  const std::string out = " --out " + path("test");
  EXPECT_EQ(hinge("data export " + path("config.toml") + " --split tset" + out), 2);
  EXPECT_TRUE(complains("Did you mean 'test'?")) << err_;
  EXPECT_EQ(hinge("data export " + path("config.toml")), 2);
  EXPECT_TRUE(complains("--out")) << err_;
  EXPECT_EQ(hinge("data export " + path("config.toml") + " --out " + path("text") + "/"), 2);
  EXPECT_TRUE(complains("cannot begin a file name")) << err_;
  EXPECT_EQ(hinge("data export " + path("config.toml") + " --set data.pear=en-fr" + out), 1);
  EXPECT_TRUE(complains("data.pair")) << err_;
  // Seen before the text is read, and nothing is left behind.
  EXPECT_EQ(hinge("data export " + path("config.toml") + " --out " + path("absent/test")), 1);
  EXPECT_TRUE(complains("absent/test.en")) << err_;
  EXPECT_EQ(hinge("data export " + path("config.toml") + out), 1);
  EXPECT_TRUE(complains("test.en: does not exist")) << err_;
  for (const auto& entry : std::filesystem::directory_iterator(path(".")))
    EXPECT_FALSE(entry.path().filename().string().starts_with("test.")) << entry.path();
  EXPECT_EQ(hinge("data export '" HINGE_CONFIGS "/vit/fashion.toml'" + out), 1);
  EXPECT_TRUE(complains("is of the task vision") && complains("translation")) << err_;
  EXPECT_EQ(hinge("data export " + path("absent") + out), 1);
  EXPECT_TRUE(complains("absent")) << err_;
  put("empty/file", "");
  EXPECT_EQ(hinge("data export " + path("empty") + out), 1);
  EXPECT_TRUE(complains("is not a run")) << err_;
}

}  // namespace
