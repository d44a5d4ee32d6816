#include "nn/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

#include "nn/random.h"

namespace hinge::nn {
namespace {

using at::Tensor;
using Part = std::function<Tensor(const Tensor&)>;

// A node of its own, because torch::autograd::Function does not see tensors inside a vector.
class RecomputeNode : public torch::autograd::Node {
 public:
  RecomputeNode(Part f, const std::vector<Tensor>& inputs)
      : Node(torch::autograd::collect_next_edges(inputs)), f_(std::move(f)), random_(generator_state()) {
    for (const Tensor& input : inputs) saved_.emplace_back(input, /*is_output=*/false);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    TORCH_CHECK(f_, "a part that is recomputed can be differentiated only once");
    std::vector<Tensor> inputs;
    for (const torch::autograd::SavedVariable& saved : saved_) inputs.push_back(saved.unpack());
    inputs[0] = inputs[0].detach().requires_grad_(true);
    const Tensor now = generator_state();
    set_generator_state(random_);
    Tensor y;
    {
      const at::AutoGradMode on(true);
      y = f_(inputs[0]);
    }
    set_generator_state(now);
    return torch::autograd::grad({y}, inputs, grads, c10::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
  }

  void release_variables() override {
    f_ = nullptr;
    saved_.clear();
    random_.reset();
  }

 private:
  Part f_;
  Tensor random_;
  std::vector<torch::autograd::SavedVariable> saved_;  // x, then the parameters
};

}  // namespace

Tensor recomputed(const Part& f, const Tensor& x, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const bool wanted = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); });
  if (!wanted || !at::GradMode::is_enabled()) return f(x);
  const std::shared_ptr<RecomputeNode> node(new RecomputeNode(f, inputs), torch::autograd::deleteNode);
  const at::NoGradGuard guard;
  Tensor y = f(x);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace hinge::nn
