// The bar fits its line, is drawn seldom, and leaves nothing behind.
#include "support/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace hinge::support {
namespace {

class ProgressTest : public testing::Test {
 protected:
  ProgressOutput output(bool terminal, bool unicode = false) {
    return {.write =
                [this](std::string_view text) {
                  text_ += text;
                  ++writes_;
                },
            .seconds = [this] { return now_; },
            .columns = [this] { return columns_; },
            .terminal = terminal,
            .unicode = unicode};
  }

  // What a terminal shows after all that was written: "\r" and "clear to the end of the line" are all we use.
  std::string screen() const {
    std::string shown, line;
    for (size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == '\n') {
        shown += line + "\n";
        line.clear();
      } else if (text_.compare(i, 4, "\r\x1b[K") == 0) {
        line.clear();
        i += 3;
      } else {
        EXPECT_NE(text_[i], '\r');
        line += text_[i];
      }
    }
    return shown + line;
  }
  static long columns_of(const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }

  std::string text_;
  int writes_ = 0, columns_ = 80;
  double now_ = 100;
};

TEST_F(ProgressTest, ShowsBarCountValuesAndTime) {
  columns_ = 90;
  Progress progress("train", 200, 0, output(true));
  now_ += 10;
  progress.update(50, {{"loss", "0.51"}, {"images/s", "900"}});
  EXPECT_EQ(screen(), "train [#######                       ] 50/200  loss 0.51  images/s 900  ETA 0:30");
}

TEST_F(ProgressTest, TimeLeftCountsFromWhereItBegan) {
  Progress progress("", 200, 100, output(true));
  now_ += 10;
  progress.update(150, {});
  EXPECT_NE(screen().find("ETA 0:10"), std::string::npos) << screen();
}

TEST_F(ProgressTest, DrawsAtMostTenTimesASecond) {
  Progress progress("t", 1000, 0, output(true));
  for (int step = 1; step <= 1000; ++step) {
    now_ += 0.001;
    progress.update(step, {});
  }
  EXPECT_GE(writes_, 9);
  EXPECT_LE(writes_, 11);
}

TEST_F(ProgressTest, FitsEveryWidth) {
  for (const bool unicode : {false, true})
    for (columns_ = 1; columns_ < 130; ++columns_) {
      text_.clear();
      Progress progress("vit/fashion", 12345, 0, output(true, unicode));
      now_ += 50;
      progress.update(6789, {{"loss", "0.5123"}, {"accuracy", "91.2%"}, {"images/s", "1234"}});
      EXPECT_LT(columns_of(screen()), columns_) << screen();
      EXPECT_TRUE(columns_ < 100 || screen().find("images/s 1234") != std::string::npos) << screen();
    }
}

TEST_F(ProgressTest, NumbersComeBeforeTheBar) {
  Progress progress("train", 375300, 0, output(true));
  now_ += 3600 * 6;
  const Progress::Values values = {{"loss", "10.9078"}, {"acc", "12.3%"}, {"images/s", "1234"}, {"accuracy", "71.23%"}};
  progress.update(123456, values);
  EXPECT_EQ(screen(), "train 123456/375300  loss 10.9078  acc 12.3%  images/s 1234  ETA 12:14:23");
  ++columns_;
  now_ += 0.2;
  progress.update(123456, values);
  EXPECT_EQ(screen(), "train [#   ] 123456/375300  loss 10.9078  acc 12.3%  images/s 1234  ETA 12:14:23");
}

TEST_F(ProgressTest, ShowsWhatIsDoneBesideTheSteps) {
  Progress progress("t", 10, 0, output(true));
  now_ += 1;
  progress.update(5, {{"loss", "0.5"}});
  progress.aside("evaluating 1/9");
  EXPECT_EQ(screen().find("evaluating"), std::string::npos) << "drawn at most ten times a second";
  now_ += 1;
  progress.aside("evaluating 2/9");
  EXPECT_NE(screen().find("] 5/10  evaluating 2/9  ETA"), std::string::npos) << screen();
  progress.aside("");
  progress.note("done");
  EXPECT_NE(screen().find("] 5/10  loss 0.5  ETA"), std::string::npos) << screen();

  text_.clear();
  Progress plain("t", 10, 0, output(false), 10);
  now_ += 20;
  plain.aside("evaluating 1/9");
  EXPECT_EQ(text_, "");
}

TEST_F(ProgressTest, LeavesNothingBehind) {
  {
    Progress progress("t", 10, 0, output(true));
    progress.update(5, {});
    EXPECT_NE(screen(), "");
    progress.note("saved");
    EXPECT_TRUE(screen().starts_with("saved\nt ["));
    progress.finish();
    EXPECT_EQ(screen(), "saved\n");
    now_ += 1;
    progress.update(6, {});
    EXPECT_EQ(screen(), "saved\n");
  }
  text_.clear();
  try {
    Progress progress("t", 10, 0, output(true));
    progress.update(5, {});
    throw 1;
  } catch (int) {
    EXPECT_EQ(screen(), "");
  }
}

TEST_F(ProgressTest, ElsewhereIsALineAnInterval) {
  Progress progress("train", 100, 0, output(false), 10);
  for (int step = 1; step <= 35; ++step) {
    now_ += 1;
    progress.update(step, {{"loss", "0.5"}});
  }
  EXPECT_EQ(text_, "train 10/100  loss 0.5  ETA 1:30\ntrain 20/100  loss 0.5  ETA 1:20\ntrain 30/100  loss 0.5  ETA 1:10\n");
  text_.clear();
  progress.finish();
  EXPECT_EQ(text_, "train 35/100  loss 0.5  ETA 1:05\n");
}

TEST(Bar, IsAsLongAsItsShare) {
  EXPECT_EQ(bar(0.5, 4, false), "[##  ]");
  EXPECT_EQ(bar(0, 4, false), "[    ]");
  EXPECT_EQ(bar(7, 4, false), "[####]");
  EXPECT_EQ(bar(std::nan(""), 4, false), "[    ]");
  EXPECT_EQ(bar(0.625, 2, true), "▕█▎▏");
}

TEST(DurationText, IsShort) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(187.4), "3:07");
  EXPECT_EQ(duration_text(7387), "2:03:07");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "?");
}

}  // namespace
}  // namespace hinge::support
