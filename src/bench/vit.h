// Measures whole vision transformers: a training step (forward, loss, backward, Adam) and inference, checked against plain ATen
// calls first, then timed in turn, the FMA peak among them. Flops counted: forward as Vit::flops() says, and
// train::training_flops of that for a training step.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/rounds.h"

namespace hinge::bench {

// "S/16", "S/8", "28px/4", "28px/2"; each has its batch.
std::vector<std::string> vit_model_names();

struct VitPlan {
  std::vector<std::string> models, attentions, gates,
      passes;  // attentions: names of presets; gates: none, linear, sigmoid; passes: train, infer
  int threads = 1;
  int warm_up = 2;  // rounds before those that count; the peers of bench/peers.py have as many
  int rounds = 5;
};

struct VitRow {
  std::string model, attention, gate, pass;
  int64_t batch = 0;
  Timing timing;
  double gflops = 0, percent_of_peak = 0, images_per_second = 0;
  int64_t memory_bytes = 0;  // largest resident size of the process while the model was measured, all its passes together
};

struct VitReport {
  Yardsticks yardsticks;
  double largest_error = 0;  // of logits against the plain model, relative to the largest logit
  int64_t memory_bytes = 0;  // largest of the rows
  std::vector<VitRow> rows;
};

VitReport run(const VitPlan& plan, const ShowProgress& progress);
nlohmann::ordered_json to_json(const VitReport& report);
std::string table(const VitReport& report);

}  // namespace hinge::bench
