#include "nn/gradient_checkpointing.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

namespace hinge::nn {
namespace {

using at::Tensor;
using Part = std::function<Tensors(const Tensors&)>;

// A node of its own, because torch::autograd::Function does not see tensors inside a vector.
class CheckpointNode : public torch::autograd::Node {
 public:
  CheckpointNode(Part f, size_t inputs, const Tensors& all)
      : Node(torch::autograd::collect_next_edges(all)), f_(std::move(f)), inputs_(inputs) {
    for (const Tensor& tensor : all) saved_.emplace_back(tensor, /*is_output=*/false);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    TORCH_CHECK(f_, "a part with gradient checkpointing can be differentiated only once");
    Tensors all, results, given;
    for (const torch::autograd::SavedVariable& saved : saved_) all.push_back(saved.unpack());
    for (size_t i = 0; i < inputs_; ++i) all[i] = all[i].detach().requires_grad_(true);
    {
      const at::AutoGradMode on(true);
      const Tensors outputs = f_({all.begin(), all.begin() + static_cast<int64_t>(inputs_)});
      for (size_t i = 0; i < outputs.size(); ++i)
        if (grads[i].defined()) results.push_back(outputs[i]), given.push_back(grads[i]);
    }
    if (results.empty()) return torch::autograd::variable_list(all.size());
    return torch::autograd::grad(results, all, given, c10::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
  }

  void release_variables() override {
    f_ = nullptr;
    saved_.clear();
  }

 private:
  Part f_;
  size_t inputs_;
  std::vector<torch::autograd::SavedVariable> saved_;  // the inputs, then the parameters
};

}  // namespace

Tensors checkpointed(const Part& f, const Tensors& inputs, const Tensors& parameters) {
  Tensors all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  const bool wanted = std::any_of(all.begin(), all.end(), [](const Tensor& tensor) { return tensor.requires_grad(); });
  if (!wanted || !at::GradMode::is_enabled()) return f(inputs);
  const std::shared_ptr<CheckpointNode> node(new CheckpointNode(f, inputs.size(), all), torch::autograd::deleteNode);
  const at::NoGradGuard guard;
  Tensors outputs = f(inputs);
  for (Tensor& output : outputs) torch::autograd::set_history(output, node);
  return outputs;
}

}  // namespace hinge::nn
