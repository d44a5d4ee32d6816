// Gradients of a scalar function against central differences in float64, element by element.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace hinge::testing {

// f takes leaves like `inputs` (float64, requiring grad). Differences of step 1e-6 of values of order 1 are right to about 1e-9 relative
// to the function's value; `tolerance` is relative to the largest gradient.
inline void expect_gradients(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f, const std::vector<at::Tensor>& inputs,
                             double tolerance = 2e-7) {
  const std::vector<at::Tensor> gradients = torch::autograd::grad({f(inputs)}, inputs, {}, c10::nullopt, false, /*allow_unused=*/true);
  const double step = 1e-6;
  for (size_t n = 0; n < inputs.size(); ++n) {
    ASSERT_TRUE(gradients[n].defined()) << "input " << n << " has no gradient";
    const at::Tensor analytic = gradients[n].contiguous().view(-1);
    at::Tensor numeric = at::empty_like(analytic);
    for (int64_t i = 0; i < analytic.numel(); ++i) {
      const auto shifted = [&](double by) {
        const at::NoGradGuard guard;
        std::vector<at::Tensor> moved = inputs;
        moved[n] = inputs[n].detach().clone(at::MemoryFormat::Contiguous);
        moved[n].view(-1)[i] += by;
        return f(moved).item<double>();
      };
      numeric[i] = (shifted(step) - shifted(-step)) / (2 * step);
    }
    const double largest = std::max(1.0, numeric.abs().max().item<double>());
    EXPECT_LT((numeric - analytic).abs().max().item<double>(), tolerance * largest) << "input " << n;
  }
}

}  // namespace hinge::testing
