#include "train/step_seconds.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "train/adam.h"
#include "train/trainer.h"
#include "train/workers.h"

namespace hinge::train {
namespace {

constexpr double kLongSeconds = 1;
constexpr size_t kCalls = 5;

template <class Action> double median_seconds(const Action& action) {
  std::vector<double> seconds;
  double all = 0;
  while (seconds.size() < kCalls && all < kLongSeconds) {
    const double begun = process_cpu_seconds();
    action();
    seconds.push_back(process_cpu_seconds() - begun);
    all += seconds.back();
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

StepSeconds step_seconds(const nn::Parameters& parameters, const std::function<Gradients()>& gradients) {
  use_threads(1);
  Workers worker(1, 1);
  WorkersParallel parallel(worker);
  Gradients last = gradients();  // memory and code are cold
  StepSeconds seconds;
  seconds.gradient = median_seconds([&] { last = gradients(); });
  Adam adam(parameters, {});
  seconds.adam = median_seconds([&] {
    adam.gradient_norm(last, parallel);
    adam.step(last, 1e-9, 0, 1, parallel);
  });
  return seconds;
}

}  // namespace hinge::train
