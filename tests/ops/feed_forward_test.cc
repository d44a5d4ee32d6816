// The feed-forward op: values against plain ATen formulas, gradients against differences, errors.
#include "hinge/ops/feed_forward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "gradcheck.h"
#include "leaves.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::Activation;
using testing::dropout_mask;
using testing::error_of;
using testing::expect_gradients;
using testing::largest_difference;
using testing::leaf;
using testing::weighted;

Tensor activated(Activation activation, const Tensor& u) {
  switch (activation) {
    case Activation::relu: return at::relu(u);
    case Activation::gelu: return at::gelu(u);
    case Activation::silu: return at::silu(u);
    default: return at::softmax(u, 1);
  }
}

TEST(FeedForward, ValuesAndGradients) {
  for (const Activation activation : {Activation::relu, Activation::gelu, Activation::silu, Activation::softmax})
    for (const double dropout : {0.0, 0.3}) {
      const std::vector<Tensor> in = {leaf({7, 5}, 1), leaf({11, 5}, 2), leaf({11}, 3), leaf({6, 11}, 4), leaf({6}, 5), leaf({7, 6}, 6)};
      const auto run = [&](const std::vector<Tensor>& t) {
        return feed_forward(activation, t[0], t[1], t[2], t[3], t[4], t[5], dropout, 9);
      };
      const Tensor hidden = activated(activation, at::matmul(in[0], in[1].t()) + in[2]) * dropout_mask(7, 11, dropout, 9);
      const Tensor expected = at::matmul(hidden, in[3].t()) + in[4] + in[5];
      EXPECT_LT(largest_difference(run(in), expected), 1e-13);
      {
        const at::NoGradGuard guard;  // works in place there, on its own memory only
        EXPECT_LT(largest_difference(run(in), expected), 1e-13);
      }
      const auto got = torch::autograd::grad({weighted(run(in))}, in), plain = torch::autograd::grad({weighted(expected)}, in);
      for (size_t i = 0; i < in.size(); ++i) EXPECT_LT(largest_difference(got[i], plain[i]), 1e-12) << i;
      expect_gradients([&](const auto& t) { return weighted(run(t)); }, in);
      // Without bias and residual.
      const Tensor bare = feed_forward(activation, in[0], in[1], in[2], in[3], {}, {}, dropout, 9);
      EXPECT_LT(largest_difference(bare, at::matmul(hidden, in[3].t())), 1e-13);
      torch::autograd::grad({weighted(bare)}, {in[0], in[3]});
      const auto single = [](const Tensor& t) { return t.detach().to(at::kFloat); };
      EXPECT_LT(
          largest_difference(run({single(in[0]), single(in[1]), single(in[2]), single(in[3]), single(in[4]), single(in[5])}), expected),
          2e-5);
    }
}

// Some rows of a larger array, in another order.
TEST(FeedForward, RowsWithNumbersDropWhatTheyDropThere) {
  const std::vector<Tensor> in = {leaf({7, 5}, 1), leaf({11, 5}, 2), leaf({11}, 3), leaf({6, 11}, 4)};
  const Tensor numbers = at::tensor({5, 0, 2}, at::kLong);
  for (const Activation activation : {Activation::relu, Activation::softmax}) {
    const Tensor all = feed_forward(activation, in[0], in[1], in[2], in[3], {}, {}, 0.3, 9).index_select(0, numbers);
    const Tensor some = feed_forward(activation, in[0].index_select(0, numbers), in[1], in[2], in[3], {}, {}, 0.3, 9, numbers);
    EXPECT_LT(largest_difference(some, all), 1e-13);
    const auto got = torch::autograd::grad({weighted(some)}, in), expected = torch::autograd::grad({weighted(all)}, in);
    for (size_t i = 0; i < in.size(); ++i) EXPECT_LT(largest_difference(got[i], expected[i]), 1e-12) << i;
  }
  EXPECT_EQ(error_of([&] { feed_forward(Activation::relu, in[0], in[1], in[2], in[3], {}, {}, 0.3, 9, numbers); }),
            "hinge::feed_forward: numbers must have 7 elements, got 3");
}

TEST(FeedForward, RowsOfSeveralDimensions) {
  const std::vector<Tensor> in = {leaf({2, 9, 5}, 1), leaf({11, 5}, 2), leaf({11}, 3), leaf({6, 11}, 4), leaf({6}, 5), leaf({2, 9, 6}, 6)};
  const Tensor got = feed_forward(Activation::gelu, in[0], in[1], in[2], in[3], in[4], in[5]);
  const Tensor expected = at::matmul(at::gelu(at::matmul(in[0], in[1].t()) + in[2]), in[3].t()) + in[4] + in[5];
  EXPECT_LT(largest_difference(got, expected), 1e-13);
  const auto gradients = torch::autograd::grad({weighted(got)}, in), plain = torch::autograd::grad({weighted(expected)}, in);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_LT(largest_difference(gradients[i], plain[i]), 1e-12) << i;
}

TEST(FeedForward, ErrorsNameTheShapes) {
  EXPECT_EQ(error_of([] {
              feed_forward(Activation::relu, leaf({2, 3}, 1), leaf({4, 5}, 2), leaf({4}, 3), leaf({3, 4}, 4), {});
            }),
            "hinge::feed_forward: x [T, C], fc1 [W, C] and fc2 [N, W] do not fit: [2, 3], [4, 5] and [3, 4]");
  EXPECT_EQ(error_of([] {
              feed_forward(Activation::relu, leaf({2, 3}, 1), leaf({4, 3}, 2), leaf({4}, 3), leaf({3, 4}, 4), {}, {}, 1.0);
            }),
            "hinge::feed_forward: dropout must be in [0, 1), got 1");
  EXPECT_EQ(error_of([] {
              feed_forward(Activation::relu, leaf({2, 9, 3}, 1), leaf({4, 3}, 2), leaf({4}, 3), leaf({5, 4}, 4), {}, leaf({9, 2, 5}, 5));
            }),
            "hinge::feed_forward: residual must have the rows of x [2, 9, 3], got [9, 2, 5]");
}

}  // namespace
}  // namespace hinge
