// Lines and documents through a small model with random weights: what is translated together, and what is answered when.
#include "decode/line_translation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "../support/errors.h"
#include "../support/open_pipe.h"
#include "../support/temporary_folder.h"
#include "number_words.h"

namespace hinge::decode {
namespace {

class Lines : public testing::Test {
 protected:
  Lines() : vocabulary_(number_words()), model_(config(), 1), translator_(model_, vocabulary_, greedy()) {}

  models::Seq2SeqConfig config() const {
    models::Seq2SeqConfig config;
    config.size = "tiny", config.vocabulary = vocabulary_.size(), config.max_length = 40;
    return config;
  }
  static TranslationOptions greedy() {
    TranslationOptions options;
    options.search.beam = 1, options.length_factor = 0, options.length_extra = 5;
    return options;
  }

  std::string translated(const Source& source) const { return translator_.translate({source}).at(0).at(0).text; }
  std::string translated(const std::string& line) const { return translated(translator_.encode(line)); }
  int64_t pieces(const std::string& line) const { return static_cast<int64_t>(translator_.encode(line).size()) - 1; }
  static std::string too_long() {
    std::string line;
    for (int i = 0; i < 60; ++i) line += "one ";
    return line;
  }

  // The answers so far: "-" for a line without translations.
  LineTranslation::Write writer() {
    return [this](std::span<const LineAnswer> answers) {
      for (const LineAnswer& answer : answers) {
        EXPECT_EQ(answer.line, answers_.size());
        answers_.push_back(answer.best.empty() ? "-" : answer.best[0].text);
      }
    };
  }
  // For tests that would hang if something were wrong.
  static std::function<bool()> after_a_minute() {
    return [end = std::chrono::steady_clock::now() + std::chrono::minutes(1)] { return std::chrono::steady_clock::now() > end; };
  }

  text::Vocabulary vocabulary_;
  models::Seq2Seq model_;
  Translator translator_;
  std::vector<std::string> answers_;
};

TEST_F(Lines, AreTranslatedOneByOne) {
  LineTranslation lines(translator_, std::nullopt);
  EXPECT_EQ(lines.translate(writer()).all, 0);
  lines.add("one two");
  lines.add("");
  EXPECT_EQ(lines.translate(writer()).done, 2);
  EXPECT_EQ(answers_, (std::vector<std::string>{translated("one two"), ""}));
  EXPECT_ERROR(lines.add(too_long()), "at most 40");
  lines.add("three");
  lines.end_document();
  EXPECT_EQ(lines.translate(writer()).done, 1);
  EXPECT_EQ(answers_.at(2), translated("three"));
  EXPECT_EQ(answers_.size(), 3U);
}

TEST_F(Lines, OfDocumentsAreTranslatedTogether) {
  const auto together = [&](const std::string& first, const std::string& second) {
    Source source = translator_.encode(first);
    const Source rest = translator_.encode(second);
    source.pop_back();
    source.insert(source.end(), rest.begin(), rest.end());
    return translated(source);
  };
  LineTranslation lines(translator_, pieces("one two three") + 1);
  lines.add(" ");
  lines.add("one two");
  lines.add("three");
  EXPECT_EQ(lines.translate(writer()).all, 0) << "the part may go on";
  EXPECT_EQ(answers_, (std::vector<std::string>{"-"}));
  lines.add("four");
  EXPECT_EQ(lines.translate(writer()).all, 1) << "it does not";
  EXPECT_EQ(answers_, (std::vector<std::string>{"-", together("one two", "three"), "-"}));
  lines.add("");
  lines.add("");
  lines.add("five");
  EXPECT_EQ(lines.translate(writer()).all, 1);
  EXPECT_EQ(answers_.size(), 6U);
  EXPECT_EQ(answers_[3], translated("four"));
  lines.end_document();
  EXPECT_EQ(lines.translate(writer()).all, 1);
  EXPECT_EQ(answers_.at(6), translated("five"));
  EXPECT_EQ(answers_.size(), 7U);

  // Parts are not longer than what the model reads.
  answers_.clear();
  LineTranslation longer(translator_, 1000);
  for (int i = 0; i < 20; ++i) longer.add("one two three");
  longer.end_document();
  EXPECT_EQ(longer.translate(writer()).all, (20 + 39 / pieces("one two three") - 1) / (39 / pieces("one two three")));
}

TEST_F(Lines, OfAPipeAreAnsweredAtOnce) {
  support::OpenPipe pipe;
  text::LineReader reader({pipe.path()});
  pipe.write("one\n");
  const auto write = [&](std::span<const LineAnswer> answers) {
    writer()(answers);
    if (answers_.size() == 1) pipe.write("two\n\n");
    if (answers_.size() == 3) pipe.write("three"), pipe.close();
  };
  ASSERT_NE(translated("one"), translated("two"));
  const LinesDone done = translate_lines(translator_, reader, std::nullopt, write, after_a_minute());
  EXPECT_TRUE(done.read_all);
  EXPECT_EQ(done.counts.done, 4);
  EXPECT_EQ(answers_, (std::vector<std::string>{translated("one"), translated("two"), "", translated("three")}));
}

TEST_F(Lines, OfAPipeAreAnsweredWhenTheirDocumentHasEnded) {
  support::OpenPipe pipe;
  text::LineReader reader({pipe.path()});
  pipe.write("one\ntwo\n\n");
  const auto write = [&](std::span<const LineAnswer> answers) {
    writer()(answers);
    if (answers_.size() == 3) pipe.write("three"), pipe.close();
  };
  const LinesDone done = translate_lines(translator_, reader, 30, write, after_a_minute());
  EXPECT_TRUE(done.read_all);
  EXPECT_EQ(done.counts.done, 2);
  ASSERT_EQ(answers_.size(), 4U);
  EXPECT_EQ(answers_[1] + answers_[2], "--");
  EXPECT_EQ(answers_[3], translated("three"));
}

TEST_F(Lines, OfFilesAreCheckedFirst) {
  const support::TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& paths, std::optional<int64_t> part_tokens) {
    text::LineReader reader(paths);
    return translate_lines(translator_, reader, part_tokens, writer(), after_a_minute()).counts.done;
  };
  const std::string good = folder.write("good", "one\n"), bad = folder.write("bad", "two\n\xFF\nthree\n"),
                    too_long_one = folder.write("long", "two\n" + too_long());
  EXPECT_ERROR(run({good, bad}, std::nullopt), bad + ":2: ", "not UTF-8");
  EXPECT_ERROR(run({good, too_long_one}, std::nullopt), too_long_one + ":2: ", "at most 40");
  EXPECT_TRUE(answers_.empty());
  EXPECT_EQ(run({good, good}, 30), 2) << "a document ends with its file";
  EXPECT_EQ(answers_, (std::vector<std::string>{translated("one"), translated("one")}));
}

TEST_F(Lines, BeforeAWrongOneOfAPipeAreAnswered) {
  for (const auto& [wrong, problem] : {std::pair<std::string, std::string>("\xFF", "not UTF-8"), {too_long(), "at most 40"}})
    for (const std::optional<int64_t> part_tokens : {std::optional<int64_t>(), std::optional<int64_t>(30)}) {
      answers_.clear();
      support::OpenPipe pipe;
      pipe.write("one\ntwo\n" + wrong + "\nthree\n");
      text::LineReader reader({pipe.path()});
      EXPECT_ERROR(translate_lines(translator_, reader, part_tokens, writer(), after_a_minute()), pipe.path() + ":3: ", problem);
      ASSERT_EQ(answers_.size(), 2U);
      EXPECT_EQ(answers_[1], part_tokens ? "-" : translated("two"));
    }
}

TEST_F(Lines, AreLeftWhenStopped) {
  support::OpenPipe pipe;
  text::LineReader reader({pipe.path()});
  pipe.write("one\ntwo\n");
  const LinesDone waited = translate_lines(translator_, reader, std::nullopt, writer(), [&] { return answers_.size() == 2; });
  EXPECT_FALSE(waited.read_all);
  EXPECT_EQ(waited.counts.done, 2);

  const support::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i) text += "one\n";
  TranslationOptions single = greedy();
  single.batch_tokens = 1;
  const Translator slow(model_, vocabulary_, single);
  answers_.clear();
  text::LineReader file({folder.write("file", text)});
  bool stop = false;
  const LinesDone cut = translate_lines(
      slow, file, std::nullopt, writer(), [&] { return stop; }, [&](int64_t done, int64_t all) { stop = done > 4 && all == 20; });
  EXPECT_TRUE(cut.read_all);
  EXPECT_EQ(cut.counts.all, 20);
  EXPECT_LT(cut.counts.done, 20);
  EXPECT_EQ(answers_.size(), static_cast<size_t>(cut.counts.done));
}

}  // namespace
}  // namespace hinge::decode
