// The commands that use a trained translation model, as a user runs them, on a tiny one that is trained here on made-up words.
// HINGE_COMMAND is the program's path.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../support/temporary_folder.h"
#include "command.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::vector<std::string> kWords = {"zero", "one", "two", "three", "four", "five", "six", "seven", "%s"};
const std::vector<std::string> kOthers = {"null", "eins", "zwei", "drei", "vier", "fuenf", "sechs", "sieben", "%s"};

std::string config(const std::string& folder, const std::string& data) {
  return R"(
task = "translation"
[model]
width = 48
ffn.width = 96
heads = 4
depth = 1
norm = "pre"
dropout = 0.0
max_length = 100
[data]
kind = "files"
pair = "en-de"
path = ")" +
         folder + "\"\n" + data + R"(
[data.vocabulary]
size = 62
[optim]
batch = 600
lr = 4e-3
warmup_steps = 40
schedule = "cosine"
[train]
threads = 1
log_steps = 100
average = 2
)";
}

// A started hinge, whose output is read while it runs.
class StartedHinge {
 public:
  // Reads from a pipe, into which type() writes. Standard error goes to the file `err`.
  StartedHinge(const std::vector<std::string>& arguments, const std::string& err) {
    int ends[2], input[2];
    if (::pipe2(ends, O_CLOEXEC) != 0 || ::pipe2(input, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    id_ = ::fork();
    if (id_ == 0) {
      ::dup2(input[0], STDIN_FILENO);
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      become(arguments);
    }
    ::close(ends[1]);
    ::close(input[0]);
    output_ = ends[0];
    input_ = input[1];
    if (id_ < 0) throw std::runtime_error("no process can be started");
  }
  // On a terminal of its own, where standard error is, too.
  explicit StartedHinge(const std::vector<std::string>& arguments) {
    id_ = ::forkpty(&output_, nullptr, nullptr, nullptr);
    if (id_ == 0) become(arguments);
    if (id_ < 0) throw std::runtime_error("no process can be started on a terminal");
    input_ = ::dup(output_);
  }
  ~StartedHinge() {
    if (!ended()) send(SIGKILL), wait();
    stop_reading();
    end_input();
  }
  StartedHinge(const StartedHinge&) = delete;
  StartedHinge& operator=(const StartedHinge&) = delete;

  // Whether `part` comes behind what was waited for before.
  bool says(const std::string& part) {
    size_t at = text_.find(part, seen_);
    while (at == std::string::npos && read_more()) at = text_.find(part, seen_);
    if (at != std::string::npos) seen_ = at + part.size();
    return at != std::string::npos;
  }
  // All of the output, when it has ended.
  const std::string& output() {
    while (read_more()) {
    }
    return text_;
  }
  void type(const std::string& text) const { EXPECT_EQ(::write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size())); }
  void end_input() {
    if (input_ >= 0) ::close(std::exchange(input_, -1));
  }
  void send(int signal) const { ::kill(id_, signal); }
  void stop_reading() {
    if (output_ >= 0) ::close(std::exchange(output_, -1));
  }
  bool ended() {
    if (!ended_ && ::waitpid(id_, &status_, WNOHANG) == id_) ended_ = true;
    return ended_;
  }
  // The exit code, or minus the signal that ended it.
  int wait() {
    if (!ended_) ::waitpid(id_, &status_, 0), ended_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  [[noreturn]] static void become(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {HINGE_COMMAND};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    std::signal(SIGINT, SIG_DFL);  // shells start what runs in the background without it
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  // False at the end, or when nothing comes for a minute.
  bool read_more() {
    pollfd waiting{output_, POLLIN, 0};
    char buffer[1 << 16];
    if (::poll(&waiting, 1, 60'000) <= 0) return false;
    const ssize_t got = ::read(output_, buffer, sizeof buffer);
    if (got > 0) text_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }

  pid_t id_ = -1;
  int input_ = -1, output_ = -1, status_ = 0;
  bool ended_ = false;
  std::string text_;
  size_t seen_ = 0;
};

class Translation : public testing::Test {
 protected:
  // One training for all tests.
  static void SetUpTestSuite() {
    temporary_.emplace();
    folder_ = temporary_->path();
    std::mt19937 random(7);
    for (const auto& [part, pairs] : {std::pair("train", 3000), std::pair("valid", 40), std::pair("test", 40)}) {
      std::ofstream source(folder_ / (std::string(part) + ".en")), target(folder_ / (std::string(part) + ".de"));
      for (int pair = 0; pair < pairs; ++pair) {
        std::string said, translated;
        for (uint32_t n = 1 + random() % 4; n > 0; --n) {
          const uint32_t word = random() % 9;
          said += (said.empty() ? "" : " ") + kWords[word];
          translated += (translated.empty() ? "" : " ") + kOthers[word];
        }
        source << said << "\n", target << translated << "\n";
        if (pair % 5 == 4) source << "\n", target << "\n";  // documents of five
      }
    }
    put("config.toml", config(folder_.string(), "longest_tokens = 40"));
    put("document.toml", config(folder_.string(), "document_tokens = 30\non_error = \"skip\""));
    std::string out, err;
    ASSERT_EQ(
        command("train " + path("config.toml") + " --out " + path("run") +
                    " --set optim.steps=800 --set train.eval_every=1.5 --set train.checkpoint_every=1.5 --set train.bleu_sentences=20",
                out, err),
        0)
        << err;
    training_ = err;
    ASSERT_EQ(command("train " + path("document.toml") + " --out " + path("documents") + " --set optim.steps=20", out, err), 0) << err;
  }
  static void TearDownTestSuite() { temporary_.reset(); }

  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static void put(const std::string& name, const std::string& content) { std::ofstream(folder_ / name, std::ios::binary) << content; }
  static std::string read(const std::string& name) { return hinge_command::read_file(folder_ / name); }
  static int command(const std::string& arguments, std::string& out, std::string& err, const std::string& in = "/dev/null") {
    const hinge_command::Result result = hinge_command::run(folder_, arguments, in);
    out = result.out, err = result.err;
    return result.code;
  }
  int run(const std::string& arguments) { return command(arguments, out_, err_); }
  int run_with(const std::string& input, const std::string& arguments) {
    put("in", input);
    return command(arguments, out_, err_, path("in"));
  }
  // The first group of lines costs nothing; those behind it take long, a batch at a time.
  static constexpr size_t kEmpty = 32 * 400, kSlow = 2000;
  static std::string slow_text() {
    std::string slow;
    for (int i = 0; i < 20; ++i) slow += "one ";
    std::string text(kEmpty, '\n');
    for (size_t i = 0; i < kSlow; ++i) text += slow + "\n";
    return text;
  }
  static std::vector<std::string> slow_arguments(const std::string& beam) {
    put("slow.en", slow_text());
    return {"translate",        path("run"), path("slow.en"), "--batch", "400",          "--beam", beam,
            "--length-penalty", "5",         "--patience",    "none",    "--max-length", "100"};
  }
  static std::string lines_of_slow_text() { return " of " + std::to_string(kEmpty + kSlow) + " lines"; }
  // Whether a file in `folder` is being written.
  static bool is_writing(const std::string& folder) {
    for (const auto& entry : fs::directory_iterator(path(folder)))
      if (entry.path().extension() == ".partial") return true;
    return false;
  }

  bool complains(const std::string& part) const { return err_.find(part) != std::string::npos; }
  static size_t lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

  static inline std::optional<hinge::support::TemporaryFolder> temporary_;
  static inline fs::path folder_;
  static inline std::string training_;
  std::string out_, err_;
};

TEST_F(Translation, OfLinesKeepsTheirOrder) {
  ASSERT_EQ(run_with("one two\n\nseven six five\r\nzero", "translate " + path("run")), 0) << err_;
  EXPECT_EQ(out_, "eins zwei\n\nsieben sechs fuenf\nnull\n");
  EXPECT_TRUE(complains("4 lines")) << err_;

  ASSERT_EQ(run("translate " + path("run") + " " + path("test.en")), 0) << err_;
  const std::string all = out_;
  EXPECT_EQ(lines(all), 48U);
  for (const char* options : {" --batch 1", " --batch 7", " --batch 100000"}) {
    ASSERT_EQ(run("translate " + path("run") + " " + path("test.en") + options), 0) << err_;
    EXPECT_EQ(out_, all) << options;
  }
  put("two.en", "two\n");
  ASSERT_EQ(run("translate " + path("run") + " " + path("test.en") + " " + path("two.en") + " --out " + path("both.de")), 0) << err_;
  EXPECT_EQ(out_, "");
  EXPECT_EQ(read("both.de"), all + "zwei\n");
  ASSERT_EQ(run("score " + path("both.de") + " " + path("both.de")), 0);
  put("all.de", all);
  ASSERT_EQ(run("score " + path("all.de") + " " + path("test.de") + " --metric bleu --json"), 0) << err_;
  EXPECT_GT(json::parse(out_)[0]["score"].get<double>(), 90);
  ASSERT_EQ(run_with("", "translate " + path("run")), 0) << err_;
  EXPECT_EQ(out_, "");
}

TEST_F(Translation, CheckpointsAreChosen) {
  for (const char* which : {"best", "latest", "averaged"}) {
    ASSERT_EQ(run_with("three four\n", "translate " + path("run") + " --checkpoint " + which), 0) << err_;
    EXPECT_EQ(out_, "drei vier\n") << which;
  }
  EXPECT_EQ(run_with("x\n", "translate " + path("run") + " --checkpoint lates"), 2);
  EXPECT_TRUE(complains("'lates'") && complains("'latest'")) << err_;
}

TEST_F(Translation, NBestAreNumberedAndSorted) {
  ASSERT_EQ(run_with("one two three\n\nfour\n", "translate " + path("run") + " --beam 5 --n-best 3"), 0) << err_;
  std::istringstream rows(out_);
  std::vector<std::pair<int, double>> seen;
  std::vector<std::string> texts;
  for (std::string row; std::getline(rows, row);) {
    const size_t first = row.find('\t'), second = row.find('\t', first + 1);
    ASSERT_NE(second, std::string::npos) << row;
    seen.emplace_back(std::stoi(row), std::stod(row.substr(first + 1)));
    texts.push_back(row.substr(second + 1));
  }
  ASSERT_EQ(seen.size(), 7U);
  EXPECT_EQ(texts[0], "eins zwei drei");
  EXPECT_EQ(texts[3], "");
  EXPECT_EQ(texts[4], "vier");
  const std::vector<int> numbers = {1, 1, 1, 2, 3, 3, 3};
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].first, numbers[i]);
  EXPECT_TRUE(seen[0].second >= seen[1].second && seen[1].second >= seen[2].second && seen[4].second >= seen[5].second);
}

TEST_F(Translation, SearchIsAsAskedFor) {
  ASSERT_EQ(run_with("one two three\n", "translate " + path("run") + " --beam 1"), 0) << err_;
  EXPECT_EQ(out_, "eins zwei drei\n");
  ASSERT_EQ(run_with("one two three\n", "translate " + path("run") + " --max-length 0.1,1"), 0) << err_;
  EXPECT_EQ(out_, "\n") << "one token, which is the end";
  const auto expect_usage = [&](const std::string& options, const std::string& part) {
    EXPECT_EQ(run_with("one\n", "translate " + path("run") + " " + options), 2) << options;
    EXPECT_TRUE(complains(part)) << err_;
  };
  expect_usage("--beam 0", "--beam '0'");
  expect_usage("--beam 2 --n-best 3", "--n-best '3'");
  expect_usage("--length-penalty x", "--length-penalty 'x'");
  expect_usage("--max-length 2,x", "--max-length 'x'");
  expect_usage("--batch 0", "--batch '0'");
  expect_usage("--in-place", "--po");
  EXPECT_EQ(run_with("one\n", "translate " + path("run") + " --patience 0.5"), 1);
  EXPECT_TRUE(complains("patience of 0.5")) << err_;
}

TEST_F(Translation, BadInputIsNamedWithItsLine) {
  EXPECT_EQ(run_with("one\ntwo \xff\n", "translate " + path("run")), 1);
  EXPECT_TRUE(complains("standard input:2")) << err_;
  EXPECT_EQ(run_with("\x1F\x8B\x08", "translate " + path("run")), 1);
  EXPECT_TRUE(complains("standard input: is cut short")) << err_;
  put("bad.en", "one\n\n\xC3\n");
  EXPECT_EQ(run("translate " + path("run") + " " + path("two.en") + " " + path("bad.en") + " --out " + path("never")), 1);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "one ";
  put("long.en", "one\n" + text + "\n");
  EXPECT_EQ(run("translate " + path("run") + " " + path("long.en") + " --out " + path("never")), 1);
  EXPECT_TRUE(complains("long.en:2") && complains("at most 100")) << err_;
  EXPECT_FALSE(fs::exists(path("never")));
  EXPECT_EQ(run("translate " + path("run") + " " + path("nothing.en")), 1);
  EXPECT_TRUE(complains("nothing.en")) << err_;
  put("own.en", "one\n");
  EXPECT_EQ(run("translate " + path("run") + " " + path("own.en") + " --out " + path("../") + folder_.filename().string() + "/own.en"), 2);
  EXPECT_TRUE(complains("own.en', which is to be translated")) << err_;
  EXPECT_EQ(read("own.en"), "one\n");
  EXPECT_EQ(run("translate " + path("run") + " " + path("own.en") + " --out -"), 2);
  EXPECT_TRUE(complains("standard output")) << err_;
  EXPECT_EQ(run_with("one\n", "translate " + path("nowhere")), 1);
  EXPECT_TRUE(complains("nowhere") && complains("not a run")) << err_;
  EXPECT_EQ(run_with("one\n", "translate " + path("run") + " --out " + path("no/such/folder")), 1);
  EXPECT_TRUE(complains("no/such/folder")) << err_;
  EXPECT_FALSE(complains("tokens/s")) << "before the translation\n" << err_;
  const int full =
      std::system((std::string(HINGE_COMMAND) + " translate " + path("run") + " " + path("test.en") + " >/dev/full 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(full), 1);
}

TEST_F(Translation, OfDocumentsKeepsTheirLines) {
  ASSERT_EQ(run("translate " + path("documents") + " " + path("test.en") + " --document --beam 1 --max-length 5"), 0) << err_;
  EXPECT_EQ(lines(out_), 48U);
  EXPECT_TRUE(complains(" document parts, ")) << err_;
  put("documents.de", out_);
  std::istringstream rows(out_), sources(read("test.en"));
  std::string row, source;
  bool first = true;  // of a document
  size_t heads = 0;
  while (std::getline(rows, row) && std::getline(sources, source)) {
    EXPECT_TRUE(!source.empty() || row.empty()) << row;
    heads += first && !source.empty();
    first = source.empty();
  }
  EXPECT_EQ(heads, 8U);
  put("first.en", "one\n"), put("second.en", "two\n");
  ASSERT_EQ(run("translate " + path("documents") + " " + path("first.en") + " " + path("second.en") + " --document --beam 1"), 0) << err_;
  EXPECT_TRUE(complains("2 document parts")) << "a file ends a document\n" << err_;
  ASSERT_EQ(run("score " + path("documents.de") + " " + path("test.de") + " --document"), 0) << err_;
  EXPECT_EQ(run("translate " + path("run") + " " + path("test.en") + " --document"), 2);
  EXPECT_TRUE(complains("single sentences")) << err_;
}

// Translations twice as long as their sources: training closes parts by the target, and translating must come to the same parts.
TEST_F(Translation, OfDocumentsCutsAsInTraining) {
  std::string source, target;
  for (int i = 0; i < 60; ++i) {
    const auto word = static_cast<size_t>(i % 8);
    source += kWords[word] + "\n" + (i % 20 == 19 ? "\n" : "");
    target += kOthers[word] + " " + kOthers[7 - word] + "\n" + (i % 20 == 19 ? "\n" : "");
  }
  put("double.en", source), put("double.de", target);
  ASSERT_EQ(run("train " + path("document.toml") + " --out " + path("double") + " --set data.train=double --set data.valid=double" +
                " --set data.vocabulary.size=40 --set optim.steps=1"),
            0)
      << err_;
  const auto parts = [&] {  // the number before " parts of documents" in training, or " document parts"
    const size_t end = std::min(err_.find(" parts of documents"), err_.find(" document parts"));
    const size_t begin = err_.find_last_not_of("0123456789", end - 1) + 1;
    return end == std::string::npos ? 0 : std::stoi(err_.substr(begin, end - begin));
  };
  const int trained = parts();
  ASSERT_EQ(run("translate " + path("double") + " " + path("double.en") + " --document --beam 1 --max-length 1"), 0) << err_;
  EXPECT_GT(trained, 3) << "not a part for each document";
  EXPECT_GE(parts(), trained) << err_;
  EXPECT_LE(parts(), trained * 3 / 2) << err_;
}

TEST_F(Translation, FillsCatalogues) {
  const std::string header =
      "# a comment\nmsgid \"\"\nmsgstr \"\"\n\"Language: de\\n\"\n\"MIME-Version: 1.0\\n\"\n"
      "\"Content-Type: text/plain; charset=UTF-8\\n\"\n\"Content-Transfer-Encoding: 8bit\\n\"\n"
      "\"Plural-Forms: nplurals=2; plural=(n != 1);\\n\"\n\n";
  std::string long_text;
  for (int i = 0; i < 200; ++i) long_text += "one ";
  const std::string kept = "#: x.c:7\nmsgid   \"done\"\nmsgstr \"erledigt\"\n\n#~ msgid \"old\"\n#~ msgstr \"alt\"\n\n";
  put("x.po", header + kept +
                  "msgid \"one\"\nmsgstr \"\"\n\n#, c-format\nmsgid \"two %s\\n\"\nmsgstr \"\"\n\nmsgid \"_seven\"\nmsgstr \"\"\n\n" +
                  "msgid \"one {x}\"\nmsgstr \"\"\n\n#, c-format\nmsgid \"%d %d\"\nmsgstr \"\"\n\n" +
                  "msgid \"translator-credits\"\nmsgstr \"\"\n\nmsgid \"" + long_text + "\"\nmsgstr \"\"\n");
  const std::string before = read("x.po");
  ASSERT_EQ(run("translate " + path("run") + " --po " + path("x.po") + " --out " + path("y.po")), 0) << err_;
  EXPECT_TRUE(complains("7 of 8 messages were empty: 4 filled")) << err_;
  EXPECT_FALSE(complains("charset")) << err_;
  EXPECT_TRUE(complains("1 left empty because no translation has the format codes of its message: line 29\n")) << err_;
  EXPECT_TRUE(complains("1 left empty because the names of the translators belong there: line 36\n")) << err_;
  EXPECT_TRUE(complains("1 left empty because a text has more tokens than the model reads (model.max_length 100): line 39\n")) << err_;
  EXPECT_EQ(read("x.po"), before);
  EXPECT_EQ(read("y.po"), header + kept +
                              "#, fuzzy\nmsgid \"one\"\nmsgstr \"eins\"\n\n#, fuzzy, c-format\nmsgid \"two %s\\n\"\n"
                              "msgstr \"zwei %s\\n\"\n\n#, fuzzy\nmsgid \"_seven\"\nmsgstr \"_sieben\"\n\n"
                              "msgid \"one {x}\"\nmsgstr \"\"\n\n#, fuzzy, c-format\nmsgid \"%d %d\"\nmsgstr \"%d %d\"\n\n" +
                              "msgid \"translator-credits\"\nmsgstr \"\"\n\nmsgid \"" + long_text + "\"\nmsgstr \"\"\n");
  if (std::system("command -v msgfmt >/dev/null 2>&1") == 0) {
    const std::string check = "msgfmt -c --use-fuzzy -o /dev/null " + path("y.po") + " 2>" + path("msgfmt");
    EXPECT_EQ(std::system(check.c_str()), 0) << read("msgfmt");
  }
  ASSERT_EQ(run("translate " + path("run") + " --threads 1 --po " + path("x.po")), 0) << err_;
  EXPECT_EQ(out_, read("y.po"));
  ASSERT_EQ(run("translate " + path("run") + " --in-place --po " + path("x.po")), 0) << err_;
  EXPECT_EQ(read("x.po"), read("y.po"));

  const auto expect_usage = [&](const std::string& options, const std::string& part) {
    EXPECT_EQ(run("translate " + path("run") + " --po " + path("x.po") + " " + options), 2) << options;
    EXPECT_TRUE(complains(part)) << err_;
  };
  expect_usage("--in-place --out " + path("z.po"), "--in-place");
  expect_usage("--out " + path("x.po"), "--in-place");
  expect_usage("--in-place --n-best 2", "--n-best");
  expect_usage("--in-place --document", "--document");
  put("bad.po", "msgid \"x\nmsgstr \"\"\n");
  EXPECT_EQ(run("translate " + path("run") + " --in-place --po " + path("bad.po")), 1);
  EXPECT_TRUE(complains("bad.po:1")) << err_;
}

TEST_F(Translation, CataloguesOfOtherLanguagesAreRefused) {
  const auto catalogue = [](const std::string& language) {
    return "msgid \"\"\nmsgstr \"Language: " + language + "\\nContent-Type: text/plain; charset=UTF-8\\n\"\n\nmsgid \"one\"\nmsgstr \"\"\n";
  };
  put("other.po", catalogue("fr_CA"));
  EXPECT_EQ(run("translate " + path("run") + " --in-place --po " + path("other.po")), 1);
  EXPECT_TRUE(complains("other.po: ") && complains("'fr_CA'") && complains("'de'") && complains("en-de")) << err_;
  EXPECT_EQ(read("other.po"), catalogue("fr_CA"));
  for (const char* language : {"", "de", "de_AT", "German"}) {
    put("other.po", catalogue(language));
    EXPECT_EQ(run("translate " + path("run") + " --in-place --po " + path("other.po")), 0) << err_;
  }
}

TEST_F(Translation, OfAPipeAnswersEachLine) {
  StartedHinge hinge({"translate", path("run")}, path("err"));
  hinge.type("one two\n");
  ASSERT_TRUE(hinge.says("eins zwei\n")) << read("err");
  hinge.type("\nseven six\r\nth");
  ASSERT_TRUE(hinge.says("\nsieben sechs\n"));
  hinge.type("ree");
  hinge.end_input();
  ASSERT_TRUE(hinge.says("drei\n")) << "no line end at the end";
  EXPECT_EQ(hinge.output(), "eins zwei\n\nsieben sechs\ndrei\n");
  EXPECT_EQ(hinge.wait(), 0);
  EXPECT_NE(read("err").find("4 lines, "), std::string::npos) << read("err");

  // A FIFO and a file behind it.
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  put("two.en", "two\n");
  StartedHinge named({"translate", path("run"), path("fifo"), path("two.en"), "--n-best", "2"}, path("err"));
  const int fifo = ::open(path("fifo").c_str(), O_WRONLY);
  ASSERT_EQ(::write(fifo, "one\n", 4), 4);
  ASSERT_TRUE(named.says("1\t") && named.says("\teins\n") && named.says("1\t")) << read("err");
  ASSERT_EQ(::write(fifo, "zero\n", 5), 5);
  ASSERT_TRUE(named.says("2\t") && named.says("\tnull\n") && named.says("2\t"));
  ::close(fifo);
  ASSERT_TRUE(named.says("3\t") && named.says("\tzwei\n") && named.says("3\t"));
  named.output();
  EXPECT_EQ(named.wait(), 0);
}

TEST_F(Translation, OfAPipeTakesWhatIsWaitingTogether) {
  ASSERT_EQ(run("translate " + path("run") + " " + path("test.en")), 0) << err_;
  const std::string expected = out_;
  StartedHinge hinge({"translate", path("run"), "--batch", "50"}, path("err"));
  std::string text, answers;
  for (int i = 0; i < 30; ++i) text += read("test.en"), answers += expected;
  ASSERT_LT(text.size(), 1U << 16) << "more than a pipe holds";
  hinge.type(text);
  hinge.end_input();
  EXPECT_EQ(hinge.output(), answers) << read("err");
  EXPECT_EQ(hinge.wait(), 0);

  // Packed text has to end first. --out appears at the end.
  put("packed.en", read("test.en"));
  ASSERT_EQ(std::system(("gzip -f " + path("packed.en")).c_str()), 0);
  StartedHinge packed({"translate", path("run"), "--out", path("packed.de")}, path("err"));
  packed.type(read("packed.en.gz"));
  EXPECT_FALSE(fs::exists(path("packed.de")));
  packed.end_input();
  EXPECT_EQ(packed.output(), "");
  EXPECT_EQ(packed.wait(), 0) << read("err");
  EXPECT_EQ(read("packed.de"), expected);
}

TEST_F(Translation, OfAPipeAnswersWhatIsBeforeAMistake) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += "one ";
  for (const auto& [wrong, problem] : {std::pair<std::string, std::string>("\xFF", "not UTF-8"), {words, "at most 100"}}) {
    StartedHinge hinge({"translate", path("run")}, path("err"));
    hinge.type("one\ntwo\n" + wrong + "\nthree\n");
    EXPECT_EQ(hinge.output(), "eins\nzwei\n") << "it does not wait for the end of the input";
    EXPECT_EQ(hinge.wait(), 1);
    err_ = read("err");
    EXPECT_TRUE(complains("standard input:3: ") && complains(problem)) << err_;
  }
}

TEST_F(Translation, OfAPipeAnswersDocumentsThatHaveEnded) {
  StartedHinge hinge({"translate", path("documents"), "--document", "--beam", "1", "--max-length", "5"}, path("err"));
  hinge.type("one\ntwo\n\n");
  ASSERT_TRUE(hinge.says("\n\n\n")) << "the part, its second line and the blank one\n" << read("err");
  hinge.type("three");
  hinge.end_input();
  EXPECT_EQ(lines(hinge.output()), 4U);
  EXPECT_EQ(hinge.wait(), 0);
  EXPECT_NE(read("err").find("2 document parts"), std::string::npos) << read("err");
}

TEST_F(Translation, OfAPipeCanBeStopped) {
  {
    StartedHinge hinge({"translate", path("run")}, path("err"));
    hinge.type("one\n");
    ASSERT_TRUE(hinge.says("eins\n")) << read("err");
    hinge.send(SIGINT);
    EXPECT_EQ(hinge.output(), "eins\n");
    EXPECT_EQ(hinge.wait(), 130);
    EXPECT_NE(read("err").find("hinge: stopped after 1 line\n"), std::string::npos) << read("err");
  }
  // Nobody reads any more.
  StartedHinge hinge({"translate", path("run")}, path("err"));
  hinge.type("one\n");
  ASSERT_TRUE(hinge.says("eins\n"));
  hinge.stop_reading();
  hinge.type("two\n");
  EXPECT_EQ(hinge.wait(), -SIGPIPE);
  EXPECT_EQ(read("err").find("hinge: "), std::string::npos) << read("err");
}

TEST_F(Translation, CtrlCKeepsTheLinesThatAreDone) {
  for (const int signal : {SIGINT, SIGTERM}) {
    StartedHinge hinge(slow_arguments("4"), path("err"));
    ASSERT_TRUE(hinge.says("\n")) << read("err");
    hinge.send(signal);
    const std::string& out = hinge.output();
    EXPECT_EQ(hinge.wait(), 130) << read("err");
    EXPECT_GE(lines(out), kEmpty);
    EXPECT_LT(lines(out), kEmpty + kSlow) << "nothing was written before all was done";
    EXPECT_TRUE(out.ends_with('\n'));
    err_ = read("err");
    EXPECT_TRUE(complains("Ctrl-C again")) << err_;
    EXPECT_TRUE(complains("hinge: stopped after " + std::to_string(lines(out)) + lines_of_slow_text() + "\n")) << err_;
  }
}

TEST_F(Translation, CtrlCMayEndTheReaderOfAPipeToo) {
  StartedHinge hinge(slow_arguments("4"), path("err"));
  ASSERT_TRUE(hinge.says("\n")) << read("err");
  hinge.send(SIGINT);
  while (!hinge.ended() && read("err").find("Ctrl-C again") == std::string::npos) {
  }
  hinge.stop_reading();
  EXPECT_EQ(hinge.wait(), 130) << read("err");
  err_ = read("err");
  EXPECT_TRUE(complains(lines_of_slow_text())) << err_;
}

TEST_F(Translation, ASecondCtrlCEndsAtOnce) {
  StartedHinge hinge(slow_arguments("200"), path("err"));
  ASSERT_TRUE(hinge.says("\n")) << read("err");
  hinge.send(SIGINT);
  while (!hinge.ended() && read("err").find("Ctrl-C again") == std::string::npos) {
  }
  hinge.send(SIGINT);
  EXPECT_EQ(hinge.wait(), -SIGINT) << read("err");
}

TEST_F(Translation, CtrlCLeavesFilesAsTheyWere) {
  fs::create_directory(path("stopped"));
  put("stopped/out.de", "old\n");
  std::vector<std::string> arguments = slow_arguments("4");
  arguments.insert(arguments.end(), {"--out", path("stopped/out.de")});
  {
    StartedHinge hinge(arguments, path("err"));
    while (!hinge.ended() && !is_writing("stopped")) {
    }
    hinge.send(SIGINT);
    EXPECT_EQ(hinge.wait(), 130);
    EXPECT_EQ(hinge.output(), "");
  }
  err_ = read("err");
  EXPECT_TRUE(complains("hinge: stopped after ") && complains(" lines; " + path("stopped/out.de") + " was not written\n")) << err_;
  EXPECT_EQ(read("stopped/out.de"), "old\n");
  EXPECT_FALSE(is_writing("stopped"));

  std::string catalogue;
  for (const std::string& a : kWords)
    for (const std::string& b : kWords)
      for (const std::string& c : kWords)
        for (const std::string& d : kWords)
          catalogue.append("msgid \"")
              .append(a)
              .append(" ")
              .append(b)
              .append(" ")
              .append(c)
              .append(" ")
              .append(d)
              .append("\"\nmsgstr \"\"\n\n");
  put("stopped/x.po", catalogue);
  {
    StartedHinge hinge({"translate", path("run"), "--po", path("stopped/x.po"), "--in-place", "--batch", "1"}, path("err"));
    while (!hinge.ended() && !is_writing("stopped")) {
    }
    hinge.send(SIGINT);
    EXPECT_EQ(hinge.wait(), 130);
  }
  err_ = read("err");
  EXPECT_TRUE(complains(" texts; " + path("stopped/x.po") + " was not written\n")) << err_;
  EXPECT_EQ(read("stopped/x.po"), catalogue);
  EXPECT_FALSE(is_writing("stopped"));
}

TEST_F(Translation, InPlaceLosesNoWorkOfOthers) {
  fs::create_directory(path("edited"));
  std::string catalogue = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n";
  for (const std::string& a : kWords)
    for (const std::string& b : kWords)
      for (const std::string& c : kWords) catalogue += "\nmsgid \"" + a + " " + b + " " + c + "\"\nmsgstr \"\"\n";
  put("edited/x.po", catalogue);
  StartedHinge hinge({"translate", path("run"), "--po", path("edited/x.po"), "--in-place", "--batch", "1"}, path("err"));
  while (!hinge.ended() && !is_writing("edited")) {
  }
  const std::string edited = "# saved by a person\n" + catalogue;
  put("edited/x.po", edited);
  EXPECT_EQ(hinge.wait(), 1);
  err_ = read("err");
  EXPECT_TRUE(complains("edited/x.po was changed by another program in the meantime")) << err_;
  EXPECT_EQ(read("edited/x.po"), edited);
  EXPECT_FALSE(is_writing("edited"));
}

TEST_F(Translation, HasAPromptOnATerminal) {
  StartedHinge hinge({"translate", path("run")});
  ASSERT_TRUE(hinge.says("Ctrl-D quits.")) << hinge.output();
  ASSERT_TRUE(hinge.says("> "));
  hinge.type("one two\n");
  EXPECT_TRUE(hinge.says("eins zwei\r\n"));
  ASSERT_TRUE(hinge.says("> "));
  hinge.type("\xff\n");
  EXPECT_TRUE(hinge.says("your line is not UTF-8"));
  ASSERT_TRUE(hinge.says("> "));
  std::string words;
  for (int i = 0; i < 200; ++i) words += "one ";
  hinge.type(words + "\n");
  EXPECT_TRUE(hinge.says("your line has "));
  EXPECT_TRUE(hinge.says("at most 100"));
  ASSERT_TRUE(hinge.says("> ")) << "it goes on";
  hinge.type("three\n");
  EXPECT_TRUE(hinge.says("drei\r\n"));
  ASSERT_TRUE(hinge.says("> "));
  hinge.type("\x04");
  hinge.output();
  EXPECT_EQ(hinge.wait(), 0);

  StartedHinge left({"translate", path("run")});
  ASSERT_TRUE(left.says("> "));
  left.type("\x03");
  left.output();
  EXPECT_EQ(left.wait(), -SIGINT);
}

TEST_F(Translation, InPlaceKeepsWhatTheFileIs) {
  const std::string before = "msgid \"one\"\nmsgstr \"\"\n", after = "#, fuzzy\nmsgid \"one\"\nmsgstr \"eins\"\n";
  put("real.po", before);
  fs::permissions(path("real.po"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real.po", path("link.po"));
  ASSERT_EQ(run("translate " + path("run") + " --in-place --po " + path("link.po")), 0) << err_;
  EXPECT_TRUE(complains("link.po does not say") && complains("charset=UTF-8") && complains("msgfmt -c")) << err_;
  EXPECT_TRUE(fs::is_symlink(path("link.po")));
  EXPECT_EQ(read("real.po"), after);
  EXPECT_EQ(fs::status(path("real.po")).permissions(), fs::perms::owner_read | fs::perms::owner_write);

  put("packed.po", before);
  ASSERT_EQ(std::system(("gzip " + path("packed.po")).c_str()), 0);
  const std::string packed = read("packed.po.gz");
  EXPECT_EQ(run("translate " + path("run") + " --in-place --po " + path("packed.po.gz")), 2);
  EXPECT_TRUE(complains("packed.po.gz") && complains("--out")) << err_;
  EXPECT_EQ(read("packed.po.gz"), packed);
  ASSERT_EQ(run("translate " + path("run") + " --po " + path("packed.po.gz") + " --out " + path("unpacked.po")), 0) << err_;
  EXPECT_EQ(read("unpacked.po"), after);

  EXPECT_EQ(run_with(before, "translate " + path("run") + " --in-place --po -"), 2);
  EXPECT_TRUE(complains("standard input") && complains("--out")) << err_;
  EXPECT_FALSE(fs::exists("-"));
  EXPECT_EQ(run_with("msgid \"x\n", "translate " + path("run") + " --po - --out " + path("unpacked.po")), 1);
  EXPECT_TRUE(complains("standard input:1")) << err_;
}

TEST_F(Translation, OfSplitsAreScored) {
  put("more.en", "one two three\nfour\n"), put("more.de", "eins zwei drei\nvier fuenf\n");
  const std::string eval = "eval " + path("run") + " --split test,more --bleu --beam 3 --length-penalty 1";
  ASSERT_EQ(run(eval + " --json -"), 0) << err_;
  const json all = json::parse(out_);
  for (const char* name : {"test", "more"}) {
    const std::string file = path(name);
    ASSERT_EQ(run("translate " + path("run") + " " + file + ".en --beam 3 --length-penalty 1 --out " + file + ".hyp"), 0) << err_;
    ASSERT_EQ(run("score " + file + ".hyp " + file + ".de --json"), 0) << err_;
    const json scores = json::parse(out_);
    EXPECT_NEAR(all["splits"][name]["bleu"].get<double>(), scores[0]["score"].get<double>(), 1e-9) << name;
    EXPECT_NEAR(all["splits"][name]["chrf"].get<double>(), scores[1]["score"].get<double>(), 1e-9) << name;
    EXPECT_NEAR(all["splits"][name]["brevity_penalty"].get<double>(), scores[0]["brevity_penalty"].get<double>(), 1e-9) << name;
  }
  EXPECT_LT(all["splits"]["more"]["length_ratio"], 1);
  // Alone and into a file, the same JSON, but for the time it took.
  ASSERT_EQ(run(eval + " --json"), 0) << err_;
  EXPECT_EQ(json::parse(out_)["splits"], all["splits"]);
  ASSERT_EQ(run(eval + " --json " + path("scores.json")), 0) << err_;
  EXPECT_EQ(out_, "");
  EXPECT_EQ(json::parse(read("scores.json"))["splits"], all["splits"]);
  ASSERT_EQ(run(eval), 0) << err_;
  EXPECT_NE(out_.find("BLEU"), std::string::npos) << out_;

  EXPECT_EQ(run("eval " + path("run") + " --split test,mroe"), 2);
  EXPECT_TRUE(complains("'mroe'") && complains("NAME.en")) << err_;
  EXPECT_EQ(run("eval " + path("run") + " --split test,test"), 2);
  EXPECT_TRUE(complains("'test' twice")) << err_;
  EXPECT_EQ(run("eval " + path("run") + " --beam 3"), 2);
  EXPECT_TRUE(complains("--bleu")) << err_;
}

// Sentences that are translated together are scored one by one: the model, which knows at most four words, still does well with two
// sentences of two words each.
TEST_F(Translation, OfJoinedSentencesAreScoredOneByOne) {
  std::string english, german;
  for (size_t i = 0; i < 8; i += 2) english += kWords[i] + " " + kWords[i + 1] + "\n", german += kOthers[i] + " " + kOthers[i + 1] + "\n";
  put("words.en", english), put("words.de", german);
  const auto scores = [&](const std::string& changes) {
    EXPECT_EQ(run("eval " + path("run") + " --split words --bleu --json " + changes), 0) << err_;
    return json::parse(out_);
  };
  const json alone = scores(""), joined = scores("--set data.document_tokens=13");
  EXPECT_EQ(alone["items"], 4);
  EXPECT_EQ(joined["items"], 2);
  EXPECT_FALSE(alone.contains("document_bleu"));
  EXPECT_EQ(joined["reference_length"], 8);
  EXPECT_EQ(joined["hypothesis_length"], 8);
  EXPECT_EQ(joined["chrf"], alone["chrf"]);
  EXPECT_EQ(joined["bleu"], 0);  // no four words in a row, which the joined sentences have
  EXPECT_GT(joined["document_bleu"], 50);
}

TEST_F(Translation, IsScoredInTraining) { EXPECT_NE(training_.find("on 20 sentences"), std::string::npos) << training_; }

TEST_F(Translation, IsAnalyzed) {
  ASSERT_EQ(run("analyze " + path("run") + " --sentences 5 --map 'one two' --map seven --out " + path("analysis") + " --json"), 0) << err_;
  const json all = json::parse(out_);
  EXPECT_EQ(all["sentences"], 5);
  ASSERT_EQ(all["layers"].size(), 5U);
  EXPECT_EQ(all["layers"][3]["name"], "decoder.0.cross_attn");
  EXPECT_NEAR(all["layers"][3]["weight_sum"].get<double>(), 1, 1e-5);
  EXPECT_GT(all["layers"][4]["zero_share"].get<double>(), 0.1);
  EXPECT_EQ(all["maps"][0]["translation"], "eins zwei");
  for (const json& file : all["files"]) EXPECT_TRUE(fs::exists(file.get<std::string>())) << file;
  EXPECT_EQ(all["files"].size(), 6U + 1 + 2 * 3 + 1);
  const std::string map = read("analysis/map-2-decoder.0.cross_attn.svg");
  EXPECT_NE(map.find("</svg>"), std::string::npos);
  EXPECT_NE(map.find("&lt;/s&gt;"), std::string::npos);
  EXPECT_EQ(json::parse(read("analysis/analysis.json"))["layers"], all["layers"]);

  EXPECT_EQ(all["means"]["decoder cross-attention"]["entropy"], all["layers"][3]["entropy"]);
  EXPECT_NEAR(all["layers"][4]["top_shares"]["100"].get<double>(), 1, 1e-6);
  EXPECT_GT(all["layers"][3]["source_shares"]["end"], 0);
  EXPECT_FALSE(all["layers"][4].contains("source_shares"));
  EXPECT_GT(all["source_tokens"]["punctuation"], 0);  // the % of %s, where it is a piece of its own

  // The numbers alone: no folder is made. They can be those of other lengths than in training.
  ASSERT_EQ(run("analyze " + path("run") + " --means --json -"), 0) << err_;
  const json means = json::parse(out_);
  EXPECT_FALSE(means.contains("layers") || means.contains("files") || fs::exists("analysis-run"));
  EXPECT_EQ(means["means"].size(), 5U);
  ASSERT_EQ(run("analyze " + path("run") + " --means --json --set data.document_tokens=60"), 0) << err_;
  EXPECT_GT(json::parse(out_)["means"]["encoder self-attention"]["entropy"], means["means"]["encoder self-attention"]["entropy"]);
  EXPECT_EQ(run("analyze " + path("run") + " --json --set data.document_tokens=101"), 1);
  EXPECT_TRUE(complains("model.max_length 100")) << err_;

  ASSERT_EQ(run("analyze " + path("run") + " --data test --means --out " + path("analysis")), 0) << err_;
  EXPECT_NE(out_.find("decoder cross-attention "), std::string::npos) << out_;
  EXPECT_EQ(out_.find("decoder cross-attention 0"), std::string::npos) << out_;
  EXPECT_NE(out_.find("weight on the source's"), std::string::npos) << out_;
  ASSERT_EQ(run("analyze " + path("run") + " --data " + path("test.en") + "," + path("test.de") + " --out " + path("analysis")), 0) << err_;
  EXPECT_NE(out_.find("decoder cross-attention 0"), std::string::npos) << out_;
  EXPECT_EQ(run("analyze " + path("run") + " --data nothing --out " + path("analysis")), 2);
  EXPECT_TRUE(complains("'nothing'")) << err_;
  // Files are read as the run's own text is: this one leaves out what is bad.
  put("half.en", "one\n\xFF\n"), put("half.de", "eins\nzwei\n");
  const std::string half = " --data " + path("half.en") + "," + path("half.de") + " --out " + path("half");
  EXPECT_EQ(run("analyze " + path("run") + half), 1);
  EXPECT_TRUE(complains("half.en:2")) << err_;
  EXPECT_EQ(run("analyze " + path("documents") + half), 0) << err_;
  // Before anything is written.
  std::string words;
  for (int i = 0; i < 200; ++i) words += "one ";
  EXPECT_EQ(run("analyze " + path("run") + " --out " + path("no-maps") + " --map '" + words + "'"), 2);
  EXPECT_TRUE(complains("--map") && complains("at most 100")) << err_;
  EXPECT_EQ(run("analyze " + path("run") + " --out " + path("no-maps") + " --map '\xFF'"), 2);
  EXPECT_TRUE(complains("UTF-8")) << err_;
  EXPECT_FALSE(fs::exists(path("no-maps")));
  EXPECT_EQ(run("analyze " + path("run") + " --out " + path("config.toml/x")), 1);
  EXPECT_TRUE(complains("--out")) << err_;
}

}  // namespace
