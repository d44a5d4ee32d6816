// Runs are found, told apart by what differs, and compared on a page that stands alone.
#include "experiment/runs.h"

#include <gtest/gtest.h>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "experiment/html_report.h"
#include "experiment/translation_report.h"

namespace hinge::experiment {
namespace {

using support::error_of;
using support::mentions;

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
  const RunTable table = run_table(runs);
  EXPECT_EQ(table.header, (std::vector<std::string>{"run", "state", "step", "best", "time", "images/s", "memory", "model.h"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"softmax", "done", "9/9", "91.25%", "1 h 02 min", "1234", "286 MB", "softmax"}));
  EXPECT_EQ(table_text(table),
            "run      state  step  best    time        images/s  memory  model.h\n"
            "relu     done   9/9   91.25%  1 h 02 min  1234      286 MB  relu\n"
            "softmax  done   9/9   91.25%  1 h 02 min  1234      286 MB  softmax\n");
  EXPECT_EQ(find_runs(path("relu/")).at(0).name, "relu");
  EXPECT_TRUE(mentions(error_of([&] { find_runs(path("none")); }), {path("none"), "No such file"}));
}

TEST_F(RunsTest, TranslationsHaveLossesAndTokens) {
  train::RunFolder run = train::RunFolder::create(path("de-en"), "task = \"translation\"\n");
  run.write_status({.state = "done",
                    .step = 9,
                    .steps = 9,
                    .best = -1.5,
                    .values = {{"perplexity", 4.4817},
                               {"bleu", 36.04},
                               {"averaged_perplexity", 4.25},
                               {"averaged_bleu", 36.5},
                               {"tokens_per_second", 5432.1}}});
  const RunTable table = run_table({read_run(path("de-en"))});
  EXPECT_EQ(table.header, (std::vector<std::string>{"run", "state", "step", "best", "perplexity", "BLEU", "averaged perplexity",
                                                    "averaged BLEU", "tokens/s"}));
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"de-en", "done", "9/9", "loss 1.500", "4.48", "36.0", "4.25", "36.5", "5432"}));

  support::MetricsWriter(train::metrics_path(path("de-en")), 0).append({1, {{"eval/loss", 1.5}}});
  const std::string html = render_html(translation_report({read_run(path("de-en")), read_run(path("de-en/"))}, "Pairs"));
  EXPECT_TRUE(mentions(html, {"<h1>Pairs</h1>", "2 runs side by side", "Loss on the validation text", path("de-en/")}));
  EXPECT_EQ(html.find("BLEU of"), std::string::npos) << "no run has this curve";
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
  EXPECT_TRUE(render_html({.title = "empty", .subtitle = "", .runs = {}, .curves = {}, .sections = {}}).ends_with("</html>\n"));
}

}  // namespace
}  // namespace hinge::experiment
