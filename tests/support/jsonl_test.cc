// Metric records survive crashes: torn lines are cut, records after the resumed step dropped, nothing else lost.
#include "support/jsonl.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "errors.h"
#include "file_size_limit.h"
#include "temporary_folder.h"

namespace hinge::support {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

class JsonlTest : public TemporaryFolderTest {
 protected:
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const MetricRecord& record : read_metrics(path("m"))) steps.push_back(record.step);
    return steps;
  }
};

TEST_F(JsonlTest, RecordsComeBack) {
  {
    MetricsWriter writer(path("m"), kAll);
    writer.append({1, {{"loss", 0.1}, {"phase", "train \"x\"\n"}}});
    writer.append({2, {{"loss", std::numeric_limits<double>::infinity()}}});
    writer.sync();
  }
  EXPECT_EQ(content("m"), "{\"step\":1,\"loss\":0.1,\"phase\":\"train \\\"x\\\"\\n\"}\n{\"step\":2,\"loss\":null}\n");
  const std::vector<MetricRecord> records = read_metrics(path("m"));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].number("loss"), 0.1);
  EXPECT_EQ(std::get<std::string>(records[0].values.at(1).second), "train \"x\"\n");
  EXPECT_TRUE(std::isnan(records[0].number("phase")));
  EXPECT_TRUE(std::isnan(records[1].number("loss")));
}

TEST_F(JsonlTest, ReopeningCutsTornLinesAndLaterSteps) {
  for (const std::string& torn : {std::string("{\"step\":9,\"lo"), std::string("\0\0\0\n", 4), std::string("{}\n"), std::string()}) {
    put("m", "{\"step\":1}\n{\"step\":3}\n{\"step\":2}\n{\"step\":4}\n" + torn);
    EXPECT_EQ(steps(), (std::vector<int64_t>{1, 3, 2, 4}));
    MetricsWriter writer(path("m"), 2);
    EXPECT_EQ(content("m"), "{\"step\":1}\n{\"step\":2}\n");
    writer.append({3, {}});
    EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3}));
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(JsonlTest, ADamagedLineInTheMiddleIsNamed) {
  put("m", "{\"step\":1}\n{\"step\":\"x\"}\n{\"step\":4}\n");
  EXPECT_TRUE(mentions(error_of([&] { read_metrics(path("m")); }), {path("m") + ":2"}));
  EXPECT_TRUE(mentions(error_of([&] { MetricsWriter writer(path("m"), 1); }), {path("m") + ":2"}));
  EXPECT_TRUE(mentions(error_of([&] { MetricsWriter writer(path("none/m"), 1); }), {"none/m", "No such file"}));
}

TEST_F(JsonlTest, AStepThatIsNoWholeNumberOf64BitsIsRefused) {
  for (const char* step : {"1e20", "1.5", "9223372036854775808", "true", "null"})
    EXPECT_FALSE(parse_metrics_line(std::string("{\"step\":") + step + "}")) << step;
  EXPECT_EQ(parse_metrics_line("{\"step\":9223372036854775807}").value().step, std::numeric_limits<int64_t>::max());
}

TEST_F(JsonlTest, AFullDiskLeavesWholeLines) {
  MetricsWriter writer(path("m"), kAll);
  writer.append({1, {{"loss", 1.0}}});
  const std::string before = content("m");
  {
    const FileSizeLimit limit(before.size() + 5);
    EXPECT_TRUE(mentions(error_of([&] { writer.append({2, {{"loss", 2.0}}}); }), {path("m"), "File too large"}));
  }
  EXPECT_EQ(content("m"), before);
  writer.append({3, {}});
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 3}));
}

TEST_F(JsonlTest, AKilledWriterLosesNothingItHasAppended) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    MetricsWriter writer(path("m"), kAll);
    for (int64_t step = 1;; ++step) {
      writer.append({step, {{"loss", 0.5}}});
      if (::write(ends[1], &step, sizeof step) != sizeof step) ::_exit(1);
    }
  }
  ::close(ends[1]);
  int64_t step = 0;
  for (int i = 0; i < 500; ++i) ASSERT_EQ(::read(ends[0], &step, sizeof step), static_cast<ssize_t>(sizeof step));
  ::kill(child, SIGKILL);
  while (::read(ends[0], &step, sizeof step) == sizeof step) {
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  const std::vector<int64_t> found = steps();
  ASSERT_GE(found.size(), static_cast<size_t>(step));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace hinge::support
