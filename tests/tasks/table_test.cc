// The table of tasks: which task a config and a run are of, what former names become, and how runs are listed and compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "../support/errors.h"
#include "../support/temporary_folder.h"
#include "support/jsonl.h"
#include "tasks/task.h"
#include "tasks/translation/config.h"
#include "tasks/vision/config.h"

namespace hinge::tasks {
namespace {

using support::error_of;
using support::mentions;

class TableTest : public support::TemporaryFolderTest {
 protected:
  void make_run(const std::string& name, const std::string& config, const train::RunStatus& status) const {
    train::RunFolder::create(path(name), config).write_status(status);
  }
};

TEST_F(TableTest, TheTaskIsReadFromTheConfig) {
  put("a.toml", "[model]\ntask = \"translation\"\n");
  EXPECT_EQ(of_config(path("a.toml")).name, "vision") << "only a key at the top counts";
  put("b.toml", "task = 'translation'\n[model]\nwidth = 3\n");
  EXPECT_EQ(of_config(path("b.toml")).name, "translation");
  put("c.toml", "task = \"translate\"\n");
  EXPECT_TRUE(
      mentions(error_of([&] { of_config(path("c.toml")); }), {path("c.toml"), "translate", "vision", "did you mean \"translation\""}));
  EXPECT_TRUE(mentions(error_of([&] { of_config(path("none.toml")); }), {path("none.toml")}));
  put("d.toml", "task = \"vit\"\n");
  EXPECT_EQ(error_of([&] { of_config(path("d.toml")); }), path("d.toml") + ": task is \"vit\"; it is called \"vision\" now");
  EXPECT_TRUE(mentions(error_of([&] { of_run(path("none")); }), {path("none"), "is not a run"}));
}

TEST_F(TableTest, ACommandForAnotherTaskSaysSo) {
  make_run("words", "task = \"translation\"\n", {});
  require_task(path("words"), "translation", "hinge translate");
  EXPECT_EQ(error_of([&] { require_task(path("words"), "vision", "hinge predict"); }),
            "'" + path("words") + "' is a translation run; hinge predict takes a vision run");
}

TEST_F(TableTest, EveryTaskIsWhole) {
  std::set<std::string> names;
  for (const Task* task : all()) {
    EXPECT_TRUE(names.insert(task->name).second) << task->name;
    const std::string keys = task->describe_config({});
    // A key of the optimiser and of the run means the same everywhere.
    EXPECT_TRUE(mentions(keys, {"task = \"" + task->name + "\"", "optim.lr = ", "optim.batch = ", "train.shards = ",
                                "cosine, linear, constant, inverse_sqrt", "train.average = 0", "train.gradient_checkpointing = false"}));
    EXPECT_TRUE(task->train && task->resume && task->evaluate && task->scores.best);
    EXPECT_FALSE(task->eval_help.empty() || task->report_title.empty() || task->curves.empty());
  }
  EXPECT_EQ(names.size(), 2u);
}

// A former name, in a file and in a change. The new one is a key of the config.
template <class Config> void expect_renamed() {
  Config config;
  const std::vector<support::ConfigField> fields = support::config_fields(config);
  const auto is_key = [&](const std::string& key) {
    return std::any_of(fields.begin(), fields.end(), [&](const support::ConfigField& field) { return field.key == key; });
  };
  const support::Renames renames = Config::renames();
  EXPECT_FALSE(renames.keys.empty());
  for (const support::Renames::Key& key : renames.keys) {
    const std::string old = "'" + key.old + "'", now = "it is called '" + key.now + "' now";
    EXPECT_TRUE(is_key(key.now)) << key.now;
    EXPECT_TRUE(mentions(error_of([&] { support::read_config_text(config, key.old + " = 1\n", "a.toml"); }), {"a.toml:1", old, now}));
    EXPECT_TRUE(mentions(error_of([&] { support::override_config(config, key.old + "=1"); }), {"--set", old, now}));
  }
  for (const support::Renames::Word& word : renames.words) {
    const auto* text = std::get_if<std::string>(&word.old);
    const std::string old = text ? *text : std::get<bool>(word.old) ? "true" : "false", quoted = text ? "\"" + old + "\"" : old;
    EXPECT_TRUE(mentions(error_of([&] { support::override_config(config, word.key + "=" + old); }),
                         {"'" + word.key + "'", quoted + "; it is called \"" + word.now + "\" now"}));
    support::override_config(config, word.key + "=" + word.now);
  }
}

TEST(Renames, FormerNamesSayTheNewOnes) {
  expect_renamed<vision::Config>();
  expect_renamed<translation::Config>();
}

TEST_F(TableTest, RunsAreListedWithTheirScores) {
  make_run("images", "task = \"vision\"\n",
           {.best = 0.9125, .values = {{"accuracy", 0.9}, {"averaged_accuracy", 0.91251}, {"images_per_second", 1234.4}}});
  make_run("words", "task = \"translation\"\n",
           {.best = -1.5,
            .values = {{"perplexity", 4.4817},
                       {"bleu", 36.04},
                       {"averaged_perplexity", 4.25},
                       {"averaged_bleu", 36.5},
                       {"tokens_per_second", 5432.1}}});
  make_run("old", "task = \"vit\"\n", {.best = 0.5, .values = {{"accuracy", 0.5}}});
  const auto table_of = [&](const char* name) { return experiment::run_table({experiment::read_run(path(name))}, score_format); };
  using Cells = std::vector<std::string>;
  EXPECT_EQ(table_of("images").header, (Cells{"run", "state", "step", "best", "accuracy", "averaged accuracy", "images/s"}));
  EXPECT_EQ(table_of("images").rows[0], (Cells{"images", "killed", "0/0", "91.25%", "90.00%", "91.25%", "1234"}));
  EXPECT_EQ(table_of("words").header,
            (Cells{"run", "state", "step", "best", "perplexity", "BLEU", "averaged perplexity", "averaged BLEU", "tokens/s"}));
  EXPECT_EQ(table_of("words").rows[0], (Cells{"words", "killed", "0/0", "loss 1.500", "4.48", "36.0", "4.25", "36.5", "5432"}));
  EXPECT_EQ(table_of("old").rows[0], (Cells{"old", "killed", "0/0", "0.5"})) << "of no task that there is";
}

TEST_F(TableTest, RunsOfOneTaskAreCompared) {
  make_run("de-en", "task = \"translation\"\n", {.best = -1.5, .values = {{"perplexity", 4.4817}}});
  support::MetricsWriter(train::metrics_path(path("de-en")), 0).append({1, {{"eval/loss", 1.5}}});
  const experiment::RunSummary run = experiment::read_run(path("de-en")), again = experiment::read_run(path("de-en/"));
  const std::string html = experiment::render_html(compare({run, again}, "Pairs"));
  EXPECT_TRUE(mentions(html, {"<h1>Pairs</h1>", "2 runs side by side", "Loss on the validation text", "loss 1.500", path("de-en/")}));
  EXPECT_EQ(html.find("BLEU of"), std::string::npos) << "no run has this curve";
  EXPECT_EQ(compare({run}, "").title, "Translation models compared");

  make_run("images", "", {});
  EXPECT_TRUE(mentions(error_of([&] {
                         compare({run, experiment::read_run(path("images"))}, "");
                       }),
                       {path("de-en"), "is a translation run", path("images"), "is a vision run", "one task"}));
  make_run("old", "task = \"vit\"\n", {});
  EXPECT_TRUE(mentions(error_of([&] { compare({experiment::read_run(path("old"))}, ""); }),
                       {path("old/config.toml"), "\"vit\"; it is called \"vision\" now"}));
}

}  // namespace
}  // namespace hinge::tasks
