// Runs of any task, in tests: stopping one at a place of its own, and comparing two.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/atomic_file.h"
#include "support/jsonl.h"
#include "support/progress.h"
#include "train/run_folder.h"

namespace hinge::train {

// Shows every step, on nothing but `said`; asks the run to stop when it says `word`.
inline support::ProgressOutput stopping_when(const std::string& word, std::atomic<bool>& stop, std::string* said = nullptr) {
  auto clock = std::make_shared<double>(0);
  return {.write =
              [=, &stop](std::string_view text) {
                stop = stop || text.find(word) != std::string::npos;
                if (said) *said += text;
              },
          .seconds = [clock] { return *clock += 1; },
          .columns = [] { return 300; },
          .terminal = true,
          .unicode = false};
}

// Once `step` of its steps are done, and before the evaluation that may follow.
inline support::ProgressOutput stopping_at(int64_t step, int64_t steps, std::atomic<bool>& stop) {
  return stopping_when(" " + std::to_string(step) + "/" + std::to_string(steps) + " ", stop);
}

inline std::string last_checkpoint_bytes(const std::string& run, int64_t step) {
  const std::string digits = std::to_string(step), folder = run + "/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits;
  const std::string averaged = folder + "/averaged.safetensors";
  return support::read_file(folder + "/weights.safetensors") + support::read_file(folder + "/state.safetensors") +
         (std::filesystem::exists(averaged) ? support::read_file(averaged) : "");
}

// The metrics of a run, all but the time it took.
inline std::vector<support::MetricRecord> metrics_of(const std::string& run) {
  std::vector<support::MetricRecord> records = support::read_metrics(metrics_path(run));
  for (support::MetricRecord& record : records)
    std::erase_if(record.values,
                  [](const auto& value) { return value.first.ends_with("_per_second") || value.first.ends_with("/waiting_share"); });
  return records;
}

inline void expect_same_metrics(const std::string& left, const std::string& right) {
  const auto a = metrics_of(left), b = metrics_of(right);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(a.size(), 2u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step) << "record " << i;
    EXPECT_EQ(a[i].values, b[i].values) << "step " << a[i].step;
  }
}

// The same numbers up to `tolerance`, which is absolute below 1; of the evaluation and of each line of the training.
inline void expect_close_metrics(const std::string& left, const std::string& right, double tolerance) {
  const auto a = metrics_of(left), b = metrics_of(right);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(a.size(), 2u);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].values.size(), b[i].values.size()) << "record " << i;
    for (size_t v = 0; v < a[i].values.size(); ++v) {
      const auto& [name, value] = a[i].values[v];
      EXPECT_EQ(name, b[i].values[v].first);
      if (const double* x = std::get_if<double>(&value)) {
        const double allowed = tolerance * std::max(1.0, std::abs(*x));
        EXPECT_NEAR(*x, std::get<double>(b[i].values[v].second), allowed) << name << " at step " << a[i].step;
      }
    }
  }
}

}  // namespace hinge::train
