// Runs to watch.
#pragma once

#include <cstdint>
#include <string>

#include "../support/temporary_folder.h"
#include "experiment/watch.h"
#include "support/jsonl.h"
#include "train/run_folder.h"

namespace hinge::watch {

inline const experiment::ScoreFormat kPercent = {
    [](double score) { return std::to_string(static_cast<int>(100 * score)) + "%"; },
    {{"accuracy", "accuracy", [](double value) { return std::to_string(static_cast<int>(100 * value)) + "%"; }}}};
inline const experiment::ScoreFormat& percent(const experiment::RunSummary&) { return kPercent; }

class WatchedRunsTest : public support::TemporaryFolderTest {
 protected:
  // Ten lines of metrics, ten steps each.
  void make(const std::string& name, const std::string& state, double best, const std::string& h = "relu") const {
    train::RunFolder run = train::RunFolder::create(path(name), "task = \"vision\"\n[model]\nh = \"" + h + "\"\n");
    support::MetricsWriter metrics(train::metrics_path(path(name)), 0);
    for (int64_t i = 1; i <= 10; ++i)
      metrics.append({10 * i, {{"train/loss", 1.0 / static_cast<double>(i)}, {"train/images_per_second", 123.0}}});
    run.log("step 100: accuracy of " + name);
    run.write_status({.state = state, .step = 100, .steps = 200, .best = best, .best_step = 90, .values = {{"accuracy", best - 0.01}}});
  }
};

}  // namespace hinge::watch
