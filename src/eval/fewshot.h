// The few-shot probe of big_vision (fewshot_lsr): a linear classifier on frozen features, in closed form.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/image_set.h"
#include "data/pipeline.h"
#include "models/vit.h"

namespace hinge::eval {

inline constexpr double kProbeL2 = 1024;  // 2^10, the paper's

struct LinearProbe {
  at::Tensor mean, deviation;  // [D], of the support set; 1e-5 is added to the deviation
  at::Tensor weights;          // [D + 1, C]; the last row weighs a constant feature of 100
};

// Ridge regression of whitened features [N, D] on targets of 1 for the label's class and -1 for the others; all in float64.
LinearProbe fit_probe(const at::Tensor& features, const at::Tensor& labels, int64_t classes, double l2 = kProbeL2);

// [n, C]; the highest of a row is the prediction.
at::Tensor probe_scores(const LinearProbe& probe, const at::Tensor& features);

// The first `shots` images of each class, class by class, in an order that depends on the seed: fewer shots are a part of more. A class
// that has fewer images gives them all.
std::vector<uint32_t> choose_shots(const data::ImageSet& images, int64_t shots, uint64_t seed);

struct FewshotOptions {
  std::vector<int64_t> shots = {1, 5, 10, 25};
  int64_t seeds = 3;
  int64_t batch = 128;
  int threads = 1;
  std::function<void(int64_t done, int64_t total)> progress = {};  // images whose features are known
};

struct FewshotResult {
  int64_t shots = 0;
  std::vector<double> accuracies;  // on the test images, one a seed

  double mean() const;
  double deviation() const;  // of the seeds, as a sample; 0 for one
};

// Both sets have the same classes. Throws std::runtime_error.
std::vector<FewshotResult> fewshot(const models::Vit& model, const std::shared_ptr<const data::ImageSet>& support,
                                   const std::shared_ptr<const data::ImageSet>& test, const data::Pipeline& pipeline,
                                   const FewshotOptions& options);

}  // namespace hinge::eval
