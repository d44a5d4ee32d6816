// Gradients as the backward pass gives them, one parameter after the other, rather than all at its end.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "nn/parameters.h"

namespace torch::autograd {
struct Node;
}

namespace hinge::train {

// While it lives, backward passes of the model hand each parameter's gradient, whole, to the listener of the thread that runs them, and
// leave nothing in Tensor::grad(). torch keeps one node for each parameter in which gradients end: here it is one of ours.
class GradientTaps {
 public:
  explicit GradientTaps(const nn::Parameters& parameters);

  using Listener = std::function<void(size_t parameter, const at::Tensor& gradient)>;
  // Listens on this thread, in gradients_of(), as long as it lives.
  class Listening {
   public:
    explicit Listening(Listener listener);
    ~Listening();
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;

   private:
    Listener listener_;
  };
  static const Listener* listener();  // of this thread; null: none

 private:
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes_;  // torch itself holds them weakly
};

}  // namespace hinge::train
