// What a training comes to. No torch here, so that commands which only print it need none.
#pragma once

#include <cstdint>
#include <string>

namespace hinge::train {

struct TrainResult {
  bool finished = false;  // false: stopped by the user, a checkpoint is saved
  int64_t step = 0, steps = 0;
  double score = 0;  // of the last evaluation
  double best = 0;
  std::string outcome;          // score and best for a person
  std::string items;            // what is counted: "images"
  double items_per_second = 0;  // of all training steps of the run
  double waiting_share = 0;     // share of their time in which no batch was ready
  int64_t parameters = 0;
  int64_t memory_bytes = 0;  // largest resident size of the process
  int64_t skipped = 0;       // files of the data that could not be read
};

}  // namespace hinge::train
