// The fused layers around attention: values against plain ATen formulas, gradients against differences, errors.
#include "hinge/ops/dense.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "gradcheck.h"
#include "leaves.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::CrossEntropy;
using testing::error_of;
using testing::expect_gradients;
using testing::leaf;
using testing::weighted;

double relative_error(const Tensor& got, const Tensor& expected) {
  EXPECT_EQ(got.sizes(), expected.sizes());
  return ((got.to(at::kDouble) - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item<double>();
}

// Sums of n products, each rounded: n eps at worst, about sqrt(n) eps in the mean; n is below 100 here.
constexpr double kFloatError = 100 * 6e-8;

TEST(Linear, IsTheProductWithBiasAndResidual) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const int64_t rows : {1, 6, 37}) {
      const Tensor x = leaf({2, rows, 13}, 1, dtype), w = leaf({7, 13}, 2, dtype), b = leaf({7}, 3, dtype),
                   r = leaf({2, rows, 7}, 4, dtype);
      const Tensor expected = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t()) + b.to(at::kDouble) + r.to(at::kDouble);
      EXPECT_LT(relative_error(hinge::linear(x, w, b, r), expected), kFloatError);
      EXPECT_LT(relative_error(hinge::linear(x, w, b), expected - r.to(at::kDouble)), kFloatError);
      EXPECT_LT(relative_error(hinge::linear(x, w), expected - r.to(at::kDouble) - b.to(at::kDouble)), kFloatError);
      // Not contiguous: the columns of a wider array, rows transposed.
      const Tensor wide = leaf({2, 13, rows}, 1, dtype).transpose(1, 2);
      EXPECT_LT(relative_error(hinge::linear(wide, w), at::matmul(wide.to(at::kDouble), w.to(at::kDouble).t())), kFloatError);
    }
}

TEST(Linear, Gradients) {
  expect_gradients([](const auto& in) { return weighted(hinge::linear(in[0], in[1], in[2], in[3])); },
                   {leaf({2, 5, 4}, 1), leaf({3, 4}, 2), leaf({3}, 3), leaf({2, 5, 3}, 4)});
  // float32 takes another path: its gradients are those of float64, rounded.
  std::vector<Tensor> gradients[2];
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const std::vector<Tensor> in = {leaf({3, 17, 24}, 1, dtype), leaf({20, 24}, 2, dtype), leaf({20}, 3, dtype),
                                    leaf({3, 17, 20}, 4, dtype)};
    gradients[dtype == at::kFloat] = torch::autograd::grad({weighted(hinge::linear(in[0], in[1], in[2], in[3]))}, in);
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(relative_error(gradients[1][i], gradients[0][i]), kFloatError);
}

TEST(LayerNormFork, ValuesAndGradients) {
  for (const int64_t width : {1, 3, 8, 33, 64}) {
    const Tensor x = leaf({5, 7, width}, 1), w = leaf({width}, 2), b = leaf({width}, 3);
    const Tensor expected = at::layer_norm(x, {width}, w, b, 1e-6);
    EXPECT_LT(relative_error(layer_norm_fork(x, w, b, 1e-6).first, expected), 1e-12) << width;
    EXPECT_TRUE(layer_norm_fork(x, w, b, 1e-6).second.equal(x));
    if (width == 1) continue;  // of one element the norm is nothing but rounding
    EXPECT_LT(relative_error(layer_norm_fork(x.to(at::kFloat), w.to(at::kFloat), b.to(at::kFloat), 1e-6).first, expected), kFloatError);
  }
  // Both results used, and the second behind the first's branch: what a pre-norm block does.
  expect_gradients(
      [](const auto& in) {
        const auto [y, skip] = layer_norm_fork(in[0], in[1], in[2], 1e-6);
        return weighted(y * y + 3 * skip);
      },
      {leaf({4, 6}, 1), leaf({6}, 2), leaf({6}, 3)});
  expect_gradients([](const auto& in) { return weighted(layer_norm_fork(in[0], in[1], in[2], 1e-6).first); },
                   {leaf({4, 6}, 1), leaf({6}, 2), leaf({6}, 3)});
}

TEST(CrossEntropyOp, ValuesAndGradients) {
  const Tensor logits = leaf({6, 11}, 1), labels = at::tensor({0, 10, 3, 3, 7, 1}, at::kLong),
               second = at::tensor({4, 10, 2, 0, 7, 9}, at::kLong);
  const auto hot = [](const Tensor& l) { return at::one_hot(l, 11).to(at::kDouble); };
  const Tensor mixed = 0.3 * hot(labels) + 0.7 * hot(second);
  const auto softmax = [&](const Tensor& target) { return -(target * at::log_softmax(logits, 1)).sum(1).mean(); };
  const auto sigmoid = [&](const Tensor& target) {
    return -(target * at::log_sigmoid(logits) + (1 - target) * at::log_sigmoid(-logits)).sum(1).mean();
  };
  EXPECT_LT(relative_error(cross_entropy(CrossEntropy::softmax, logits, labels), softmax(hot(labels))), 1e-13);
  EXPECT_LT(relative_error(cross_entropy(CrossEntropy::sigmoid, logits, labels), sigmoid(hot(labels))), 1e-13);
  EXPECT_LT(relative_error(cross_entropy(CrossEntropy::softmax, logits, labels, second, 0.3), softmax(mixed)), 1e-13);
  EXPECT_LT(relative_error(cross_entropy(CrossEntropy::sigmoid, logits, labels, second, 0.3), sigmoid(mixed)), 1e-13);
  EXPECT_LT(relative_error(cross_entropy(CrossEntropy::softmax, logits.to(at::kFloat) * 50, labels),
                           -at::log_softmax(logits * 50, 1).gather(1, labels.unsqueeze(1)).mean()),
            kFloatError);
  for (const CrossEntropy kind : {CrossEntropy::softmax, CrossEntropy::sigmoid})
    expect_gradients([&](const auto& in) { return 3 * cross_entropy(kind, in[0], labels, second, 0.3); }, {leaf({6, 11}, 2)});
}

TEST(Patches, FollowTheOrderOfAConvolution) {
  const Tensor images = leaf({2, 9, 6, 3}, 1, at::kFloat).detach(), weights = leaf({5, 3, 3, 3}, 2, at::kFloat).detach();
  const Tensor expected = at::conv2d(images.permute({0, 3, 1, 2}), weights, {}, 3).flatten(2).transpose(1, 2);
  EXPECT_LT(relative_error(at::matmul(patches(images, 3), weights.view({5, 27}).t()), expected.to(at::kDouble)), kFloatError);
}

TEST(Dense, ErrorsNameTheShapes) {
  const Tensor x = leaf({2, 4}, 1);
  EXPECT_EQ(error_of([&] { hinge::linear(x, leaf({3, 5}, 2)); }), "hinge::linear: x [..., K] and w [N, K] do not fit: [2, 4] and [3, 5]");
  EXPECT_EQ(error_of([&] {
              hinge::linear(x, leaf({3, 4}, 2), leaf({2}, 3));
            }),
            "hinge::linear: bias must have the shape [3] and the input's dtype Double, got [2] and Double");
  EXPECT_EQ(error_of([&] {
              cross_entropy(CrossEntropy::softmax, x, at::tensor({0, 4}, at::kLong));
            }),
            "hinge::cross_entropy: labels must be in [0, 4), got 4");
  EXPECT_EQ(error_of([&] {
              patches(at::zeros({1, 3, 3, 1}), 4);
            }),
            "hinge::patches: a patch of 4 pixels does not fit into images of 3 x 3");
  EXPECT_NE(error_of([&] {
              const Tensor w = leaf({3, 4}, 2);
              const auto first = torch::autograd::grad(std::vector<Tensor>{weighted(hinge::linear(x, w))}, std::vector<Tensor>{x}, {},
                                                       c10::nullopt, /*create_graph=*/true);
            }).find("cannot be differentiated once more"),
            std::string::npos);
}

}  // namespace
}  // namespace hinge
