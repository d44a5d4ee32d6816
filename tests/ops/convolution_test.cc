// The convolution against LibTorch's: values, gradients, errors; and the same bits for any number of threads.
#include "hinge/ops/convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gradcheck.h"
#include "leaves.h"
#include "op_error.h"
#include "threads.h"

namespace hinge {
namespace {

using at::Tensor;
using testing::error_of;
using testing::expect_gradients;
using testing::largest_difference;
using testing::leaf;
using testing::weighted;

Tensor by_libtorch(const Tensor& images, const Tensor& kernels, int64_t stride) {
  return at::conv2d(images.permute({0, 3, 1, 2}), kernels, {}, stride, /*padding=*/1).permute({0, 2, 3, 1});
}

struct Case {
  int64_t n, height, width, in, out, stride;
};
// One pixel, odd sizes, several images per product, more images than groups, more places than one product has.
constexpr Case kCases[] = {{1, 1, 1, 1, 1, 1},  {2, 5, 7, 3, 4, 1},    {3, 6, 5, 2, 9, 2},
                           {37, 4, 4, 5, 8, 2}, {2, 20, 19, 3, 16, 1}, {5, 9, 9, 8, 24, 3}};

TEST(Convolution, IsLibTorchs) {
  for (const Case& c : kCases) {
    const Tensor x = leaf({c.n, c.height, c.width, c.in}, 1), w = leaf({c.out, c.in, 3, 3}, 2);
    const Tensor expected = by_libtorch(x, w, c.stride), y = convolution(x, w, c.stride);
    EXPECT_LT(largest_difference(y, expected), 1e-12);
    const auto gradients = torch::autograd::grad({weighted(y)}, {x, w}), wanted = torch::autograd::grad({weighted(expected)}, {x, w});
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(gradients[i], wanted[i]), 1e-11) << "gradient " << i;
    // float32 takes another path; sums have up to n height width terms of order 1.
    const Tensor xf = leaf({c.n, c.height, c.width, c.in}, 1, at::kFloat), wf = leaf({c.out, c.in, 3, 3}, 2, at::kFloat);
    const Tensor yf = convolution(xf, wf, c.stride);
    EXPECT_LT(largest_difference(yf, expected), 9 * static_cast<double>(c.in) * 6e-7);
    const auto floats = torch::autograd::grad({weighted(yf)}, {xf, wf});
    for (size_t i = 0; i < 2; ++i)
      EXPECT_LT(largest_difference(floats[i], wanted[i]), 1e-5 * std::max(1.0, wanted[i].abs().max().item<double>())) << "gradient " << i;
  }
}

TEST(Convolution, Gradients) {
  for (const int64_t stride : {1, 2})
    expect_gradients([&](const auto& in) { return weighted(convolution(in[0], in[1], stride)); },
                     {leaf({3, 4, 5, 2}, 1), leaf({3, 2, 3, 3}, 2)});
  // Only what is wanted, and of arrays in another order of memory.
  const Tensor images = leaf({2, 3, 4, 4}, 1).detach().permute({0, 2, 3, 1}),
               kernels = leaf({3, 3, 5, 3}, 2).detach().transpose(2, 3).slice(3, 0, 3);
  const Tensor w = kernels.clone().requires_grad_(true), x = images.clone().requires_grad_(true);
  EXPECT_LT(largest_difference(torch::autograd::grad({weighted(convolution(images, w, 1))}, {w})[0],
                               torch::autograd::grad({weighted(by_libtorch(images, w, 1))}, {w})[0]),
            1e-12);
  EXPECT_LT(largest_difference(torch::autograd::grad({weighted(convolution(x, kernels, 1))}, {x})[0],
                               torch::autograd::grad({weighted(by_libtorch(x, kernels, 1))}, {x})[0]),
            1e-12);
}

TEST(Convolution, HasTheSameBitsForAnyNumberOfThreads) {
  std::vector<Tensor> first;
  for (const int count : {1, 2, 3, 5}) {
    const Threads threads(count);
    const Tensor x = leaf({37, 12, 12, 8}, 1, at::kFloat), w = leaf({24, 8, 3, 3}, 2, at::kFloat);
    const Tensor y = convolution(x, w, 2);
    std::vector<Tensor> results = torch::autograd::grad({weighted(y)}, {x, w});
    results.push_back(y.detach());
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(at::equal(results[i], first[i])) << "result " << i << ", " << count << " threads";
  }
}

TEST(Convolution, MistakesAreNamed) {
  const Tensor x = at::zeros({1, 4, 4, 2}), w = at::zeros({3, 2, 3, 3});
  EXPECT_EQ(error_of([&] { convolution(x, w, 0); }), "hinge::convolution: stride must be at least 1, got 0");
  EXPECT_NE(error_of([&] { convolution(x[0], w, 1); }).find("images must have 4 dimensions"), std::string::npos);
  EXPECT_NE(error_of([&] {
              convolution(x, at::zeros({3, 4, 3, 3}), 1);
            }).find("kernels must have the shape [3, 2, 3, 3]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { convolution(x, w.to(at::kDouble), 1); }).find("kernels"), std::string::npos);
  EXPECT_NE(error_of([&] { convolution(at::zeros({0, 4, 4, 2}), w, 1); }).find("no images"), std::string::npos);
}

}  // namespace
}  // namespace hinge
