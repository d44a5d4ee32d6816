#include "train/gradient_taps.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <utility>

namespace hinge::train {
namespace {

thread_local const GradientTaps::Listener* present = nullptr;

// In the place of torch's AccumulateGrad. Its highest sequence number makes it run as soon as the gradient is whole.
class Tap final : public torch::autograd::Node {
 public:
  Tap(size_t parameter, const at::Tensor& value) : Node(std::numeric_limits<uint64_t>::max()), parameter_(parameter) {
    add_input_metadata(value);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    TORCH_CHECK(present != nullptr, "hinge: a backward pass outside of gradients_of(), while gradients are tapped");
    if (gradients[0].defined()) (*present)(parameter_, gradients[0]);
    return {};
  }

 private:
  const size_t parameter_;
};

}  // namespace

GradientTaps::GradientTaps(const nn::Parameters& parameters) {
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const at::Tensor& value = parameters.all()[i].value;
    nodes_.emplace_back(new Tap(i, value), torch::autograd::deleteNode);
    torch::autograd::impl::set_grad_accumulator(value, nodes_.back());
  }
}

GradientTaps::Listening::Listening(Listener listener) : listener_(std::move(listener)) { present = &listener_; }
GradientTaps::Listening::~Listening() { present = nullptr; }
const GradientTaps::Listener* GradientTaps::listener() { return present; }

}  // namespace hinge::train
