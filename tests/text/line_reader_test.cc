// Lines from files, pipes and FIFOs: all of them, in order, and each without waiting for those behind it.
#include "text/line_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "../support/open_pipe.h"
#include "text/files.h"
#include "writers.h"

namespace hinge::text {
namespace {

using support::OpenPipe;
using Lines = std::vector<std::string>;

Lines all_lines(LineReader& reader) {
  Lines lines;
  int64_t number = 1;
  while (const std::optional<LineGroup> group = reader.next()) {
    EXPECT_EQ(group->first, number);
    lines.insert(lines.end(), group->lines.begin(), group->lines.end());
    number = group->ends_file ? 1 : number + std::ssize(group->lines);
  }
  return lines;
}

TEST(LineReader, GivesTheLinesOfFilesAndPipes) {
  const TemporaryFolder folder;
  std::string large;
  for (int i = 0; i < 700'000; ++i) large += std::to_string(i) + (i % 7 == 0 ? "\r\n" : " ");
  for (const std::string& content :
       {std::string(), std::string("\n"), std::string("one"), std::string("one\n\ntwo\r\n"), std::string("\xEF\xBB\xBF"),
        std::string("\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo"), std::string("\x1F"), std::string("one\n\x1F\x8B"), large}) {
    const std::vector<std::string_view> split = split_lines(content);
    const Lines expected(split.begin(), split.end());
    for (const std::string& bytes : {content, gzipped(content), xzipped(content)}) {
      LineReader file({folder.write("file", bytes)});
      EXPECT_FALSE(file.live());
      EXPECT_EQ(all_lines(file), expected);
      OpenPipe pipe;
      LineReader piped({pipe.path()});
      EXPECT_TRUE(piped.live());
      std::thread writer([&] {
        if (bytes.size() < 100)
          for (const char& byte : bytes) pipe.write({&byte, 1});
        else
          pipe.write(bytes);
        pipe.close();
      });
      EXPECT_EQ(all_lines(piped), expected);
      writer.join();
    }
  }
}

TEST(LineReader, AnswersBeforeTheEnd) {
  OpenPipe pipe;
  LineReader reader({pipe.path()});
  for (int64_t number = 1; number < 20; ++number) {
    pipe.write("line " + std::to_string(number) + "\nbegun");
    const std::optional<LineGroup> group = reader.next();
    ASSERT_TRUE(group);
    EXPECT_EQ(group->lines, Lines{(number > 1 ? "begunline " : "line ") + std::to_string(number)});
    EXPECT_EQ(group->first, number);
    EXPECT_FALSE(group->ends_file);
  }
  pipe.close();
  const std::optional<LineGroup> last = reader.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->lines, Lines{"begun"});
  EXPECT_TRUE(last->ends_file);
  EXPECT_FALSE(reader.next());
}

TEST(LineReader, TakesWhatIsWaitingTogether) {
  OpenPipe pipe;
  for (int i = 0; i < 5000; ++i) pipe.write("line\n");
  LineReader reader({pipe.path()});
  EXPECT_EQ(reader.next()->lines.size(), 5000U);
}

TEST(LineReader, ReadsAheadUpToALimit) {
  OpenPipe pipe;
  LineReader reader({pipe.path()});
  const std::string line(1000, 'x');
  constexpr size_t kLines = 20'000;
  std::thread writer([&] {
    for (size_t i = 0; i < kLines; ++i) pipe.write(line + "\n");
    pipe.close();
  });
  size_t lines = 0;
  while (const std::optional<LineGroup> group = reader.next()) {
    EXPECT_LT(group->lines.size() * line.size(), LineReader::kMostBytes + line.size());
    for (const std::string& one : group->lines) EXPECT_EQ(one, line);
    lines += group->lines.size();
  }
  writer.join();
  EXPECT_EQ(lines, kLines);

  OpenPipe endless;
  LineReader refuses({endless.path()});
  endless.write("short\n");
  std::thread filler([&] { endless.write(std::string(LineReader::kMostBytes + 1, 'x')); });
  EXPECT_EQ(refuses.next()->lines, Lines{"short"});
  EXPECT_ERROR(refuses.next(), endless.path() + ":2: ", "longer than 4 MiB");
  filler.join();
}

TEST(LineReader, CanBeStopped) {
  OpenPipe pipe;
  LineReader reader({pipe.path()});
  pipe.write("not a whole line");
  int asked = 0;
  EXPECT_FALSE(reader.next([&] { return ++asked > 1; })) << "while it waits";
  pipe.write("\n");
  EXPECT_FALSE(reader.next([] { return true; }));
  EXPECT_TRUE(reader.next());
  // Its end does not wait for the pipe's.
}

TEST(LineReader, ReadsFilesOneAfterTheOther) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string cut = folder.write("cut.gz", "\x1F\x8B\x08");
  LineReader reader({folder.write("a", "a1\na2"), fifo, folder.write("empty", ""), cut, folder.path("a")});
  EXPECT_TRUE(reader.live());
  std::optional<LineGroup> group = reader.next();
  ASSERT_TRUE(group) << "nobody writes into the FIFO yet";
  EXPECT_EQ(group->lines, (Lines{"a1", "a2"}));
  EXPECT_EQ(group->file, folder.path("a"));
  EXPECT_TRUE(group->ends_file);
  const int end = ::open(fifo.c_str(), O_WRONLY);
  ASSERT_EQ(::write(end, "f1\nf2\n", 6), 6);
  group = reader.next();
  ASSERT_TRUE(group);
  EXPECT_EQ(group->lines, (Lines{"f1", "f2"}));
  EXPECT_FALSE(group->ends_file);
  ::close(end);
  group = reader.next();
  ASSERT_TRUE(group);
  EXPECT_TRUE(group->lines.empty() && group->ends_file);
  EXPECT_EQ(group->first, 3);
  group = reader.next();
  ASSERT_TRUE(group);
  EXPECT_EQ(group->file, folder.path("empty"));
  EXPECT_ERROR(reader.next(), "cut.gz: is cut short");
  EXPECT_FALSE(reader.next());

  EXPECT_ERROR(LineReader({folder.path("a"), folder.path("absent")}), "absent: cannot be read: No such file");
  EXPECT_ERROR(LineReader({folder.path()}), "is a folder");
}

}  // namespace
}  // namespace hinge::text
