// The fused ops around attention and feed-forward layers: values against plain ATen formulas with the mask of dropout written out,
// gradients against differences, errors.
#include "hinge/ops/sequence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "gradcheck.h"
#include "leaves.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using testing::dropout_mask;
using testing::error_of;
using testing::expect_gradients;
using testing::largest_difference;
using testing::leaf;
using testing::weighted;

TEST(EmbedTokens, ValuesAndGradients) {
  const Tensor tokens = at::tensor({3, 0, 3, 3, 6, 1, 0}, at::kLong), offsets = at::tensor({0, 4, 4, 7}, at::kLong),
               place = at::tensor({0, 1, 2, 3, 0, 1, 2}, at::kLong);
  for (const double dropout : {0.0, 0.4}) {
    const Tensor weight = leaf({8, 5}, 1), positions = leaf({6, 5}, 2);
    const auto embed = [&](const Tensor& w, const Tensor& p) { return embed_tokens(w, tokens, offsets, p, 3, dropout, 11); };
    const Tensor expected = (3 * weight.index_select(0, tokens) + positions.index_select(0, place)) * dropout_mask(7, 5, dropout, 11);
    EXPECT_LT(largest_difference(embed(weight, positions), expected), 1e-14);
    EXPECT_LT(largest_difference(embed(weight.to(at::kFloat), positions.to(at::kFloat)), expected), 1e-5);
    const auto got = torch::autograd::grad({weighted(embed(weight, positions))}, {weight, positions}),
               plain = torch::autograd::grad({weighted(expected)}, {weight, positions});
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(got[i], plain[i]), 1e-13);
    expect_gradients([&](const auto& in) { return weighted(embed(in[0], in[1])); }, {weight, positions});
    // Positions that are constants.
    torch::autograd::grad({weighted(embed(weight, positions.detach()))}, {weight});
  }
}

// Some rows of a larger array, in another order.
TEST(ResidualNorm, RowsWithNumbersDropWhatTheyDropThere) {
  const std::vector<Tensor> in = {leaf({5, 9}, 1), leaf({5, 9}, 2), leaf({9}, 3), leaf({9}, 4)};
  const Tensor numbers = at::tensor({4, 0, 3}, at::kLong);
  const auto rows = [&](const Tensor& t) { return t.index_select(0, numbers); };
  const auto all = residual_norm(in[0], in[1], in[2], in[3], 1e-6, 0.25, 5),
             some = residual_norm(rows(in[0]), rows(in[1]), in[2], in[3], 1e-6, 0.25, 5, numbers);
  EXPECT_LT(largest_difference(some.first, rows(all.first)), 1e-12);
  EXPECT_LT(largest_difference(some.second, rows(all.second)), 1e-14);
  const auto total = [&](const Tensor& normed, const Tensor& sum) { return weighted(normed) + weighted(sum.sin()); };
  const auto got = torch::autograd::grad({total(some.first, some.second)}, in),
             expected = torch::autograd::grad({total(rows(all.first), rows(all.second))}, in);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_LT(largest_difference(got[i], expected[i]), 1e-12) << i;
}

TEST(ResidualNorm, ValuesAndGradients) {
  for (const double dropout : {0.0, 0.25}) {
    const std::vector<Tensor> in = {leaf({5, 9}, 1), leaf({5, 9}, 2), leaf({9}, 3), leaf({9}, 4)};
    const auto run = [&](const std::vector<Tensor>& t) { return residual_norm(t[0], t[1], t[2], t[3], 1e-6, dropout, 5); };
    const Tensor y = in[0] + in[1] * dropout_mask(5, 9, dropout, 5), z = at::layer_norm(y, {9}, in[2], in[3], 1e-6);
    EXPECT_LT(largest_difference(run(in).first, z), 1e-12);
    EXPECT_LT(largest_difference(run(in).second, y), 1e-14);
    std::vector<Tensor> single;
    for (const Tensor& t : in) single.push_back(t.detach().to(at::kFloat));
    EXPECT_LT(largest_difference(run(single).first, z), 1e-5);
    for (const int uses : {1, 2, 3}) {  // the norm, the sum, both
      const auto total = [&](const Tensor& normed, const Tensor& sum) {
        Tensor t = at::zeros({}, at::kDouble);
        if (uses & 1) t = t + weighted(normed);
        if (uses & 2) t = t + weighted(sum.sin());
        return t;
      };
      const auto r = run(in);
      const auto got = torch::autograd::grad({total(r.first, r.second)}, in, {}, c10::nullopt, false, true),
                 plain = torch::autograd::grad({total(z, y)}, in, {}, c10::nullopt, /*retain_graph=*/true, true);
      for (size_t i = 0; i < in.size(); ++i)
        EXPECT_LT(largest_difference(got[i], plain[i].defined() ? plain[i] : at::zeros_like(got[i])), 1e-12) << uses << i;
    }
    expect_gradients(
        [&](const auto& t) {
          const auto [normed, sum] = run(t);
          return weighted(normed * normed + 3 * sum);
        },
        in);
  }
}

TEST(RmsNorm, ValuesAndGradients) {
  const Tensor x = leaf({6, 7}, 1), w = leaf({7}, 2), expected = x / (x.square().mean(1, true) + 1e-6).sqrt() * w;
  EXPECT_LT(largest_difference(rms_norm(x, w, 1e-6), expected), 1e-13);
  EXPECT_LT(largest_difference(rms_norm(x.to(at::kFloat), w.to(at::kFloat), 1e-6), expected), 1e-5);
  expect_gradients([](const auto& in) { return weighted(rms_norm(in[0], in[1], 1e-6)); }, {x, w});
  // A row of zeros, as attention without any weight gives: finite.
  const Tensor zero = at::zeros({1, 7}, at::kDouble).requires_grad_(true);
  EXPECT_TRUE(at::isfinite(torch::autograd::grad({weighted(rms_norm(zero, w, 1e-6))}, {zero})[0]).all().item<bool>());
}

TEST(ProjectedCrossEntropy, ValuesAndGradients) {
  const Tensor labels = at::tensor({0, 10, 3, 3, 7, 1}, at::kLong);
  for (const double smoothing : {0.0, 0.1}) {
    const Tensor x = leaf({6, 5}, 1), w = leaf({11, 5}, 2), logits = at::matmul(x, w.t()), log = at::log_softmax(logits, 1);
    const Tensor nll = -log.gather(1, labels.unsqueeze(1)).squeeze(1), expected = ((1 - smoothing) * nll - smoothing * log.mean(1)).mean();
    const ProjectedLoss got = projected_cross_entropy(x, w, labels, smoothing);
    EXPECT_NEAR(got.loss.item<double>(), expected.item<double>(), 1e-13);
    EXPECT_NEAR(got.nll, nll.sum().item<double>(), 1e-12);
    EXPECT_EQ(got.right, (logits.argmax(1) == labels).sum().item<int64_t>());
    EXPECT_NEAR(projected_cross_entropy(x.to(at::kFloat), w.to(at::kFloat), labels, smoothing).loss.item<double>(), expected.item<double>(),
                1e-5);
    for (const double factor : {1.0, 0.3})
      expect_gradients([&](const auto& in) { return projected_cross_entropy(in[0], in[1], labels, smoothing).loss * factor; }, {x, w});
    const at::NoGradGuard guard;
    EXPECT_NEAR(projected_cross_entropy(x, w, labels, smoothing).loss.item<double>(), expected.item<double>(), 1e-13);
  }
}

// So many logits that they are made in parts.
TEST(ProjectedCrossEntropy, InParts) {
  const int64_t rows = 700, classes = 60000;
  const Tensor x = leaf({rows, 3}, 1, at::kFloat), w = leaf({classes, 3}, 2, at::kFloat), labels = at::arange(rows, at::kLong) * 80;
  const Tensor wide_x = x.detach().to(at::kDouble).requires_grad_(true), wide_w = w.detach().to(at::kDouble).requires_grad_(true);
  const ProjectedLoss got = projected_cross_entropy(x, w, labels, 0.1);
  const Tensor log = at::log_softmax(at::matmul(wide_x, wide_w.t()), 1);
  const Tensor expected = (-0.9 * log.gather(1, labels.unsqueeze(1)).squeeze(1) - 0.1 * log.mean(1)).mean();
  EXPECT_NEAR(got.loss.item<double>(), expected.item<double>(), 1e-5);
  const auto a = torch::autograd::grad({got.loss}, {x, w}), b = torch::autograd::grad({expected}, {wide_x, wide_w});
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(a[i], b[i]), 1e-5 * b[i].abs().max().item<double>()) << i;
}

TEST(Sequence, ErrorsNameTheShapes) {
  const Tensor weight = leaf({8, 5}, 1), positions = leaf({2, 5}, 2), tokens = at::tensor({1, 2, 3}, at::kLong);
  const auto embed = [&](const Tensor& t, const Tensor& offsets) {
    return error_of([&] { embed_tokens(weight, t, offsets, positions, 1); });
  };
  EXPECT_EQ(embed(tokens, at::tensor({0, 2, 3}, at::kLong)), "");
  EXPECT_EQ(embed(tokens, at::tensor({0, 3}, at::kLong)), "hinge::embed_tokens: places in the sequences must be in [0, 2), got 2");
  EXPECT_EQ(embed(tokens, at::tensor({0, 2}, at::kLong)),
            "hinge::embed_tokens: offsets must go from 0 to the number of tokens, 3, and never decrease");
  EXPECT_EQ(embed(at::tensor({1, 8, 3}, at::kLong), at::tensor({0, 2, 3}, at::kLong)),
            "hinge::embed_tokens: tokens must be in [0, 8), got 8");
  EXPECT_EQ(error_of([&] { residual_norm(weight, positions, leaf({5}, 3), leaf({5}, 4), 1e-6); }),
            "hinge::residual_norm: x must have the shape [8, 5] and the input's dtype Double, got [2, 5] and Double");
  EXPECT_EQ(error_of([&] { projected_cross_entropy(weight, positions, tokens, 0); }),
            "hinge::projected_cross_entropy: labels must have 8 elements, got 3");
  EXPECT_EQ(error_of([&] {
              projected_cross_entropy(positions, weight, at::tensor({0, -1}, at::kLong), 0);
            }),
            "hinge::projected_cross_entropy: labels must be in [0, 8), got -1");
  EXPECT_NE(error_of([&] {
              torch::autograd::grad({weighted(rms_norm(weight, leaf({5}, 3), 1e-6))}, {weight}, {}, c10::nullopt, true, false);
            }).find("once more"),
            std::string::npos);
}

}  // namespace
}  // namespace hinge
