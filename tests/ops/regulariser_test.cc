// The ReLUFormer's regulariser: its formula from the weights themselves, gradients against differences, errors.
#include "hinge/ops/regulariser.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "gradcheck.h"
#include "hinge/ops/packed_attention.h"
#include "leaves.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using testing::error_of;
using testing::expect_gradients;
using testing::largest_difference;
using testing::leaf;

Tensor by_head(const Tensor& rows, int64_t heads) { return rows.unflatten(1, {heads, -1}).transpose(0, 1).unsqueeze(0); }

TEST(ReluformerRegulariser, IsItsFormulaFromTheWeights) {
  const int64_t H = 2;
  const Tensor qkv = leaf({9, 3 * H * 4}, 5);
  PackedAttentionOptions options;
  options.attention = preset("reluformer");
  options.attention.causal = true;
  options.attention.q_offsets = options.attention.k_offsets = at::tensor({0, 5, 9}, at::kLong);
  options.statistics = true;
  const PackedAttentionResult result = packed_attention(qkv, H, options);
  const Tensor n = visible_keys(options.attention.q_offsets, options.attention.k_offsets, true);
  EXPECT_TRUE(at::equal(n, at::tensor({1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0}, at::kDouble)));
  const Tensor got = reluformer_regulariser(result.weight_sum, result.weight_log, n);

  // From the weights themselves. Rows without any weight: the tangent of the logarithm at 1e-3.
  const auto parts = qkv.chunk(3, 1);
  std::vector<Tensor> rows;
  int64_t without = 0;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 9}})
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = begin; i < end; ++i) {
        const int64_t visible = i - begin + 1;
        const Tensor q = by_head(parts[0], H)[0][h][i], k = by_head(parts[1], H)[0][h].narrow(0, begin, visible);
        const Tensor w = at::relu(at::mv(k, q) / 2) / std::sqrt(static_cast<double>(visible) / 2), sum = w.sum();
        if (sum.item<double>() == 0) {
          rows.push_back(-std::log(1e-3) + 1 - sum / 1e-3), ++without;
          continue;
        }
        const Tensor p = w / sum, entropy = -(p * at::where(p > 0, p, at::ones_like(p)).log()).sum();
        rows.push_back(sum.log().abs() + (entropy - 0.7 * std::log(static_cast<double>(visible))).clamp_min(0));
      }
  EXPECT_GT(without, 0) << "no row of this test is without weights";
  const Tensor expected = at::stack(rows).mean();
  EXPECT_NEAR(got.item<double>(), expected.item<double>(), 1e-12);
  const Tensor a = torch::autograd::grad({got * 2}, {qkv})[0], b = torch::autograd::grad({expected * 2}, {qkv})[0];
  EXPECT_LT(largest_difference(a, b), 1e-12);
  EXPECT_TRUE(at::isfinite(a).all().item<bool>());
}

TEST(ReluformerRegulariser, Gradients) {
  const Tensor n = at::tensor({1.0, 4.0, 9.0, 9.0}, at::kDouble);
  const Tensor sum = at::tensor({0.5, 1.5, 3.0, 4e-4}, at::kDouble).view({1, 1, 4}).requires_grad_(true);
  const Tensor log = at::tensor({-0.3, -2.0, 3.0, -3e-3}, at::kDouble).view({1, 1, 4}).requires_grad_(true);
  for (const double margin : {0.7, 0.0, std::numeric_limits<double>::infinity()})
    expect_gradients([&](const auto& in) { return reluformer_regulariser(in[0], in[1], n, margin); }, {sum, log}, 1e-6);
}

TEST(ReluformerRegulariser, ErrorsNameWhatIsWrong) {
  EXPECT_NE(error_of([] {
              reluformer_regulariser(leaf({1, 2, 3}, 1), leaf({1, 2, 3}, 2), at::ones({2}, at::kDouble));
            }).find("visible float64 [T]"),
            std::string::npos);
  const auto error_of_offsets = [](std::vector<int64_t> q_offsets, std::vector<int64_t> k_offsets) {
    return error_of([&] { visible_keys(at::tensor(q_offsets, at::kLong), at::tensor(k_offsets, at::kLong), true); });
  };
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 900, 3}, {-5, 1, 3}, {1, 2, 3}})
    EXPECT_EQ(error_of_offsets(wrong, {0, 1, 2}), "hinge::visible_keys: q_offsets must start with 0 and never decrease");
  EXPECT_EQ(error_of_offsets({}, {}), "hinge::visible_keys: q_offsets must start with 0 and never decrease");
  EXPECT_EQ(error_of_offsets({0, 1, 3}, {0, 2, 1}), "hinge::visible_keys: k_offsets must start with 0 and never decrease");
}

}  // namespace
}  // namespace hinge
