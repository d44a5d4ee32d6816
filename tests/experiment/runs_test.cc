// Runs are found, told apart by what differs, and compared on a page that stands alone.
#include "experiment/runs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "experiment/html_report.h"

namespace hinge::experiment {
namespace {

using support::error_of;
using support::mentions;

const ScoreFormat kPercent = {[](double score) { return std::to_string(std::lround(100 * score)) + "%"; }, {}};
const ScoreFormat& percent(const RunSummary&) { return kPercent; }

class RunsTest : public support::TemporaryFolderTest {
 protected:
  RunsTest() {
    for (const char* h : {"relu", "softmax"}) {
      train::RunFolder run = train::RunFolder::create(path(h), std::string("steps = 9\n[model]\nh = \"") + h + "\"\n");
      run.write_status({.state = "done",
                        .step = 9,
                        .steps = 9,
                        .best = 0.9125,
                        .values = {{"images_per_second", 1234.4}, {"train_seconds", 3725}, {"memory_bytes", 3e8}}});
      support::MetricsWriter metrics(train::metrics_path(path(h)), 0);
      for (int64_t step = 1; step <= 1000; ++step) metrics.append({step, {{"loss", 1.0 / static_cast<double>(step)}}});
    }
  }
};

TEST_F(RunsTest, TableShowsWhatDiffers) {
  put("not a run", "");
  const std::vector<RunSummary> runs = find_runs(folder_.string());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].metrics.size(), 1000u);
  const Table table = run_table(runs, percent);
  EXPECT_EQ(table.header, (std::vector<std::string>{"run", "state", "step", "best", "time", "images/s", "memory", "model.h"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"softmax", "done", "9/9", "91%", "1 h 02 min", "1234", "286 MB", "softmax"}));
  EXPECT_EQ(table_text(table),
            "run      state  step  best  time        images/s  memory  model.h\n"
            "relu     done   9/9   91%   1 h 02 min  1234      286 MB  relu\n"
            "softmax  done   9/9   91%   1 h 02 min  1234      286 MB  softmax\n");
  EXPECT_EQ(find_runs(path("relu/")).at(0).name, "relu");
  EXPECT_TRUE(mentions(error_of([&] { find_runs(path("none")); }), {path("none"), "No such file"}));
}

// Each run has the columns of its own scores; those of several have one.
TEST_F(RunsTest, ScoresAreShownAsTheirFormatSays) {
  const auto text = [](double value) { return std::to_string(std::lround(value)); };
  const ScoreFormat words = {[](double score) { return "loss " + std::to_string(std::lround(-score)); },
                             {{"loss", "loss", text}, {"errors", "errors", text}}};
  const ScoreFormat images = {kPercent.best, {{"right", "accuracy", kPercent.best}, {"loss", "image_loss", text}}};
  train::RunFolder::create(path("words"), "").write_status({.best = -3, .values = {{"loss", 3}, {"tokens_per_second", 5432.1}}});
  train::RunFolder::create(path("images"), "")
      .write_status({.best = 0.5, .values = {{"accuracy", 0.25}, {"image_loss", 7}, {"images_per_second", 12.3}}});
  const Table table = run_table({read_run(path("words")), read_run(path("images"))},
                                [&](const RunSummary& run) -> const ScoreFormat& { return run.name == "words" ? words : images; });
  EXPECT_EQ(table.header, (std::vector<std::string>{"run", "state", "step", "best", "loss", "right", "images/s", "tokens/s"}));
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"words", "killed", "0/0", "loss 3", "3", "-", "-", "5432"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"images", "killed", "0/0", "50%", "7", "25%", "12", "-"}));
}

TEST_F(RunsTest, TellsRunningFromKilled) {
  {
    train::RunFolder run = train::RunFolder::open(path("relu"));
    run.write_status({.state = "running"});
    EXPECT_EQ(read_run(path("relu")).state, "running");
  }
  EXPECT_EQ(read_run(path("relu")).state, "killed");
}

TEST_F(RunsTest, ADamagedFileIsAProblemOfItsRunOnly) {
  put("relu/status.json", "{");
  put("softmax/config.toml", "= 3");
  const std::vector<RunSummary> runs = find_runs(folder_.string());
  EXPECT_TRUE(mentions(runs[0].problems.at(0), {"relu/status.json"}));
  EXPECT_EQ(runs[0].state, "unknown");
  EXPECT_TRUE(mentions(runs[1].problems.at(0), {"softmax/config.toml:1"}));
}

TEST_F(RunsTest, PageIsWholeEscapedAndStandsAlone) {
  Report report{.title = "relu <& softmax>",
                .subtitle = "sub",
                .runs = find_runs(folder_.string()),
                .scores = kPercent,
                .curves = {{"loss", "Training loss", "loss"}, {"unknown", "Nothing", ""}},
                .sections = {{"Maps", "<script>", {{"a \"cat\"\n2nd line", "\x89PNG\r\n\x1a\nxy"}}, 99}}};
  report.runs[0].status.message = "<b>";
  const std::string html = render_html(report);
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_TRUE(mentions(html, {"relu &lt;&amp; softmax&gt;", "&lt;script&gt;", "&lt;b&gt;", "Training loss", "<td>model.h</td>",
                              "alt=\"a &quot;cat&quot; 2nd line\"", "a &quot;cat&quot;<br>2nd line</figcaption>",
                              " width=\"99\" src=\"data:image/png;base64,iVBORw0KGgp4eQ==\"", "prefers-color-scheme: dark"}));
  for (const char* forbidden : {"<script", "<link", "src=\"http", "<b>", "Nothing", "<& "})
    EXPECT_EQ(html.find(forbidden), std::string::npos) << forbidden;
  report.sections[0].pictures[0].png = "GIF";
  EXPECT_THROW(render_html(report), std::invalid_argument);
  const Report empty{.title = "empty", .subtitle = "", .runs = {}, .scores = kPercent, .curves = {}, .sections = {}};
  EXPECT_TRUE(render_html(empty).ends_with("</html>\n"));
}

}  // namespace
}  // namespace hinge::experiment
