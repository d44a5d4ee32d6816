// What a sweep has measured: one line of JSON per point, in a small text file that is fit to be committed. Files of several machines are
// merged by putting their lines together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiment/sweep.h"

namespace hinge::experiment {

// The states of a point's result.
inline constexpr const char *kDone = "done", *kDiverged = "diverged", *kFailed = "failed";

struct PointResult {
  Point point;
  std::string config;        // hash of the point's resolved config; empty if the config could not be read
  std::string state;         // done; diverged: loss or gradient became infinite, which is a result, too; failed: is tried again
  std::string message = {};  // why it diverged or failed
  int64_t steps = 0;         // done
  int64_t parameters = 0;
  double flops = 0;                                                            // of training: a step counts three times its forward pass
  double seconds = 0;                                                          // of training, without evaluations
  double core_hours = 0;                                                       // processor time of these seconds, of all threads
  std::map<std::string, std::vector<std::pair<int64_t, double>>> scores = {};  // step and value of "eval/accuracy"
  std::map<std::string, double> measures = {};                                 // "test.accuracy"
  std::string version = {}, machine = {};                                      // that it was trained with and on
  std::string finished = {};                                                   // UTC, ISO 8601

  bool is_finished() const { return state != kFailed; }
};

// One result per point: a finished one rather than a failed one, and of several that are alike the first. A file that is not there holds
// none. A torn last line is passed over; throws std::runtime_error with the line's number for a damaged one, and for a point that was
// measured with two configs.
std::vector<PointResult> read_results(const std::string& file);

// The same, but with all the configs that a point was measured with.
std::vector<PointResult> read_all_results(const std::string& file);

// A line for the file, without its end.
std::string result_line(const PointResult& result);

// Reads all results, lets `change` change them, and writes them back as a whole, while no other process does the same. The file and its
// folder are made if need be.
void change_results(const std::string& file, const std::function<void(std::vector<PointResult>& results)>& change);

}  // namespace hinge::experiment
