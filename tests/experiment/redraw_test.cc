// Figures and tables in the documents are those of the results beside them. HINGE_SOURCE is the root of the sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "../support/errors.h"
#include "experiment/sweep_report.h"
#include "experiment/sweep_tables.h"
#include "support/atomic_file.h"
#include "sweep_results_file.h"

namespace hinge::experiment {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder, const std::string& beginning, const std::string& ending) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); name.starts_with(beginning) && name.ends_with(ending))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// What is in `root`/docs and not what its results give: figures docs/results/*.svg and tables of docs/results-*.md. Also results that no
// sweep names.
std::vector<std::string> outdated(const fs::path& root) {
  std::vector<std::string> problems;
  std::vector<fs::path> unclaimed = files_in(root / "docs/results", "", ".jsonl");
  std::vector<fs::path> figures = files_in(root / "docs/results", "", ".svg");
  for (const fs::path& file : files_in(root / "configs/sweeps", "", ".toml")) {
    Sweep sweep = read_sweep(file.string());
    const fs::path results = sweep.results;
    if (results.empty() || !fs::exists(results)) continue;
    std::erase_if(unclaimed, [&](const fs::path& one) { return fs::equivalent(one, results); });
    const SweepData data = gather(std::move(sweep), read_results(results.string()));
    for (const auto& [name, svg] : figure_files(data)) {
      const fs::path committed = root / "docs/results" / name;
      if (!fs::exists(committed) || support::read_file(committed.string()) != svg)
        problems.push_back(fmt::format("{} is not what {} gives", committed.string(), file.string()));
      std::erase(figures, committed);
    }
    for (const TableConfig& config : data.sweep.tables) {
      bool found = false;
      for (const fs::path& document : files_in(root / "docs", "results-", ".md")) {
        const std::string text = support::read_file(document.string());
        const auto redrawn = replace_table(text, config.name, tabulate_markdown(data, config), document.string());
        found = found || redrawn;
        if (redrawn && *redrawn != text)
          problems.push_back(fmt::format("{}: the table '{}' is not what {} gives", document.string(), config.name, file.string()));
      }
      if (!found) problems.push_back(fmt::format("no document has the table '{}' of {}", config.name, file.string()));
    }
  }
  for (const fs::path& file : unclaimed) problems.push_back(file.string() + " is not the results of any sweep");
  for (const fs::path& file : figures) problems.push_back(file.string() + " is not a figure of any sweep");
  return problems;
}

TEST(Documents, ShowWhatTheResultsGive) {
  for (const std::string& problem : outdated(HINGE_SOURCE))
    ADD_FAILURE() << problem << "; redraw with: hinge report SWEEP.toml --figures docs/results --markdown docs/results-NAME.md";
}

class OutdatedTest : public SweepResultsTest {
 protected:
  OutdatedTest() {
    measure_all([](const Point& point) { return 0.8 + 0.02 * value_of(point, "seed").get<double>(); });
    put("configs/sweeps/small.toml",
        std::string(kSmallSweep).replace(std::string(kSmallSweep).find("results/small"), 7, "../../docs/results") +
            R"(
[[figure]]
name = "picture"
x = "alpha"
y = "test.accuracy"
[[table]]
name = "accuracy"
rows = ["L", "h"]
value = "test.accuracy"
)");
    put("docs/results/small.jsonl", content("results/small.jsonl"));
  }
};

TEST_F(OutdatedTest, IsSeen) {
  EXPECT_EQ(outdated(folder_ / "nothing").size(), 0u);
  EXPECT_EQ(outdated(folder_).size(), 2u) << "neither figure nor table is there";

  Sweep sweep = read_sweep(path("configs/sweeps/small.toml"));
  const SweepData all = gather(std::move(sweep), read_results(path("docs/results/small.jsonl")));
  put("docs/results/picture.svg", figure_files(all).at(0).second);
  put("docs/results-small.md", "<!-- begin: table accuracy -->\n<!-- end: table accuracy -->\n");
  put("docs/results-small.md", markdown_files(all, {path("docs/results-small.md")}).at(0).second);
  EXPECT_TRUE(outdated(folder_).empty());

  std::string results = content("docs/results/small.jsonl");
  const size_t digit = results.find("\"test.accuracy\":0.8") + 18;
  results[digit] = '7';
  put("docs/results/small.jsonl", results);
  ASSERT_EQ(outdated(folder_).size(), 2u);
  EXPECT_TRUE(support::mentions(outdated(folder_)[0], {"picture.svg", "small.toml"}));
  EXPECT_TRUE(support::mentions(outdated(folder_)[1], {"results-small.md", "'accuracy'"}));

  results[digit] = '8';
  put("docs/results/small.jsonl", results);
  put("docs/results/other.jsonl", "");
  put("docs/results/other.svg", "");
  EXPECT_EQ(outdated(folder_).size(), 2u) << "what belongs to no sweep";
}

}  // namespace
}  // namespace hinge::experiment
