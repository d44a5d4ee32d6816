// How well a classifier does on a set of images.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "hinge/kernels/cross_entropy.h"
#include "models/vit.h"
#include "train/processes.h"

namespace hinge::vision {

struct ClassCount {
  int64_t images = 0, right = 0;
};

struct Evaluation {
  int64_t images = 0, top1 = 0, top5 = 0;
  double loss = 0;  // mean
  std::vector<ClassCount> classes;
  std::vector<std::string> skipped;  // files that could not be decoded
  bool stopped = false;              // before its end
  double accuracy() const { return images ? static_cast<double>(top1) / static_cast<double>(images) : 0; }
  double top5_accuracy() const { return images ? static_cast<double>(top5) / static_cast<double>(images) : 0; }
};

struct EvaluationOptions {
  int64_t batch = 128;
  int threads = 1;
  data::OnError on_error = data::OnError::stop;
  kernels::CrossEntropy loss = kernels::CrossEntropy::softmax;
  // Predict only among these classes (of the model); empty: among all. The set's label i is class among[i].
  std::vector<int64_t> among = {};
  std::function<void(int64_t done, int64_t total)> progress = {};
  const std::atomic<bool>* stop = nullptr;                 // looked at after each batch
  train::Processes processes = train::Processes(nullptr);  // that share the images; all have the same result
};

Evaluation evaluate(const models::Vit& model, const std::shared_ptr<const data::ImageSet>& images, const data::Pipeline& pipeline,
                    const EvaluationOptions& options);

}  // namespace hinge::vision
