// What the terminal shows and what its keys do, without a terminal.
#include "watch/screen.h"

#include <gtest/gtest.h>

#include "experiment/markup.h"
#include "watched_runs.h"

namespace hinge::watch {
namespace {

class ScreenTest : public WatchedRunsTest {
 protected:
  ScreenTest() {
    make("a-softmax", "done", 0.91, "softmax");
    make("b-relu", "stopped", 0.93);
    make("group/c-relu", "done", 0.89);
    watched_.refresh();
  }

  std::vector<std::string> lines(int rows = 24, int columns = 120) {
    std::vector<std::string> texts;
    for (const Line& line : screen_.draw(rows, columns, "12:34:56")) {
      std::string& text = texts.emplace_back();
      for (const Span& span : line) text += span.text;
    }
    return texts;
  }
  std::string text(int rows = 24, int columns = 120) {
    std::string all;
    for (const std::string& line : lines(rows, columns)) all += line + "\n";
    return all;
  }
  // The names of the runs from the top.
  std::string order() {
    std::string names;
    for (const std::string& line : lines())
      for (const char* name : {"a-softmax", "b-relu", "c-relu"})
        if (line.find(std::string(name) + " ") != std::string::npos && line.find("100/200") != std::string::npos) names += name[0];
    return names;
  }
  std::string selected() {
    for (const Line& line : screen_.draw(24, 120, ""))
      if (!line.empty() && line[0].style == Style::selected) return line[0].text.substr(0, line[0].text.find(' '));
    return "";
  }
  void type(const std::string& letters) {
    for (const char c : letters) screen_.press(Key::character, c);
  }

  experiment::WatchedFolder watched_{folder_.string()};
  Screen screen_{watched_, percent, /*unicode=*/false};
};

TEST_F(ScreenTest, ShowsAllRuns) {
  const std::vector<std::string> shown = lines();
  ASSERT_EQ(shown.size(), 24u);
  EXPECT_NE(shown[0].find("3 runs, 2 done, 1 stopped"), std::string::npos) << shown[0];
  EXPECT_TRUE(shown[0].ends_with(" 12:34:56 ")) << shown[0];
  EXPECT_TRUE(shown[1].starts_with("run^")) << shown[1];
  EXPECT_NE(shown[2].find("90%"), std::string::npos) << shown[2];
  EXPECT_NE(shown[2].find("123 images/s"), std::string::npos) << shown[2];
  EXPECT_EQ(order(), "abc");
  EXPECT_NE(text().find("accuracy of a-softmax"), std::string::npos);  // the log of the selected run
  EXPECT_NE(shown.back().find("q quit"), std::string::npos);
}

TEST_F(ScreenTest, MovesAndOpens) {
  EXPECT_EQ(selected(), "a-softmax");
  screen_.press(Key::down);
  EXPECT_EQ(selected(), "b-relu");
  type("j");
  EXPECT_EQ(selected(), "group/c-relu");
  screen_.press(Key::down);
  EXPECT_EQ(selected(), "group/c-relu");
  screen_.press(Key::first);
  EXPECT_EQ(selected(), "a-softmax");
  type("j");
  screen_.press(Key::open);
  const std::string details = text();
  for (const char* part : {" b-relu", "stopped", "100/200", "best    93% at step 90", "hinge train --resume",
                           "loss of training, steps 10 to 100", "accuracy of b-relu", "#"})
    EXPECT_NE(details.find(part), std::string::npos) << part << "\n" << details;
  screen_.press(Key::up);
  EXPECT_NE(text().find("accuracy of a-softmax"), std::string::npos);
  EXPECT_TRUE(screen_.press(Key::character, 'q'));  // back first
  EXPECT_NE(text().find("3 runs"), std::string::npos);
  EXPECT_FALSE(screen_.press(Key::character, 'q'));
  EXPECT_FALSE(screen_.press(Key::quit));
}

TEST_F(ScreenTest, SortsAndReverses) {
  type("sssss");  // run, state, step, left, score, best
  EXPECT_NE(lines()[1].find("bestv"), std::string::npos) << lines()[1];
  EXPECT_EQ(order(), "bac");
  type("r");
  EXPECT_EQ(order(), "cab");
  type("SSSSS");
  EXPECT_EQ(order(), "abc");
}

TEST_F(ScreenTest, Filters) {
  type("/RELU");
  EXPECT_EQ(order(), "bc");
  screen_.press(Key::open);  // keeps it
  EXPECT_NE(lines().back().find("filter: RELU"), std::string::npos);
  screen_.press(Key::back);
  EXPECT_EQ(order(), "abc");
  type("/model.h=soft");
  EXPECT_EQ(order(), "a");
  EXPECT_EQ(selected(), "a-softmax");
  for (int i = 0; i < 4; ++i) screen_.press(Key::erase);
  type("xyz");
  EXPECT_EQ(order(), "");
  EXPECT_NE(text().find("No run matches"), std::string::npos);
  screen_.press(Key::back);
  EXPECT_EQ(order(), "abc");
}

TEST_F(ScreenTest, ArchivedRunsAreHiddenUntilAskedFor) {
  watched_.archive(*watched_.find("b-relu"), true);
  watched_.refresh();
  EXPECT_EQ(order(), "ac");
  EXPECT_NE(lines()[0].find("1 archived"), std::string::npos) << lines()[0];
  type("a");
  EXPECT_EQ(order(), "abc");
}

TEST_F(ScreenTest, FitsEverySize) {
  for (const bool open : {false, true}) {
    if (open) screen_.press(Key::open);
    for (const auto& [rows, columns] : std::vector<std::pair<int, int>>{{1, 1}, {2, 5}, {5, 20}, {10, 40}, {24, 80}, {60, 300}}) {
      const std::vector<std::string> shown = lines(rows, columns);
      EXPECT_EQ(shown.size(), static_cast<size_t>(rows));
      for (const std::string& line : shown) EXPECT_LE(experiment::letter_count(line), static_cast<size_t>(columns)) << line;
    }
  }
}

// The selected run is always on the screen.
TEST_F(ScreenTest, Scrolls) {
  for (int i = 0; i < 50; ++i) make("many/" + std::to_string(100 + i), "done", 0.5);
  watched_.refresh();
  EXPECT_EQ(selected(), "a-softmax");
  for (int i = 0; i < 52; ++i) {
    screen_.press(Key::down);
    EXPECT_NE(selected(), "") << i;
  }
  EXPECT_EQ(selected(), "many/149");
  screen_.press(Key::page_up);
  EXPECT_NE(selected(), "many/149");
  screen_.press(Key::first);
  EXPECT_EQ(selected(), "a-softmax");
}

TEST_F(ScreenTest, AnEmptyFolderSaysSo) {
  std::filesystem::create_directory(path("empty"));
  experiment::WatchedFolder empty(path("empty"));
  empty.refresh();
  Screen screen(empty, percent, true);
  screen.press(Key::down);
  screen.press(Key::open);
  std::string all;
  for (const Line& line : screen.draw(10, 80, ""))
    for (const Span& span : line) all += span.text;
  EXPECT_NE(all.find("No runs yet"), std::string::npos);
}

}  // namespace
}  // namespace hinge::watch
