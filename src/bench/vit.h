// Measures whole vision transformers: a training step (forward, loss, backward, Adam) and inference, checked against plain ATen
// calls first, then timed in turn, the FMA peak among them. Flops counted: forward as Vit::flops() says, three times that a training step.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace hinge::bench {

// "S/16", "S/8", "28px/4", "28px/2"; each has its batch.
std::vector<std::string> vit_model_names();

struct VitPlan {
  std::vector<std::string> models, attentions, passes;  // attentions: names of presets; passes: train, infer
  int threads = 1;
  int rounds = 5;
};

struct VitRow {
  std::string model, attention, pass;
  int64_t batch = 0;
  double median_ms = 0, lower_quartile_ms = 0, upper_quartile_ms = 0, fastest_ms = 0;
  double gflops = 0, percent_of_peak = 0, images_per_second = 0;
  int64_t memory_bytes = 0;  // largest resident size of the process while the model was measured, all its passes together
};

struct VitReport {
  double fma_peak_gflops = 0, sgemm_gflops = 0;
  int threads = 1;
  std::string simd, cpu;
  double largest_error = 0;  // of logits against the plain model, relative to the largest logit
  int64_t memory_bytes = 0;  // largest of the rows
  std::vector<VitRow> rows;
};

VitReport run(const VitPlan& plan, const std::function<void(const std::string&)>& progress);
nlohmann::ordered_json to_json(const VitReport& report);
std::string table(const VitReport& report);

}  // namespace hinge::bench
