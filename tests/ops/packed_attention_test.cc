// Attention on packed projections: values against the op on separate tensors, gradients against differences, errors.
#include "hinge/ops/packed_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "gradcheck.h"
#include "leaves.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::SparseRule;
using testing::error_of;
using testing::expect_gradients;
using testing::largest_difference;
using testing::leaf;
using testing::weighted;

const std::optional<SparseRule> kEveryRule[] = {std::nullopt, SparseRule::sparsemax, SparseRule::entmax15};

Tensor offsets(std::initializer_list<int64_t> values) { return at::tensor(values, at::kLong); }

Tensor by_head(const Tensor& rows, int64_t heads) { return rows.unflatten(1, {heads, -1}).transpose(0, 1).unsqueeze(0); }

// The same of separate tensors, by the engine's own op.
AttentionResult separate(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, const AttentionOptions& options) {
  return attention_with_statistics(by_head(q, heads), by_head(k, heads), by_head(v, heads), options);
}

PackedAttentionOptions jagged(const char* preset_name, bool causal) {
  PackedAttentionOptions options;
  options.attention = preset(preset_name);
  options.attention.causal = causal;
  return options;
}

TEST(PackedAttention, ToItselfIsAttentionOfTheParts) {
  for (const std::string& name : preset_names())
    for (const bool statistics : {false, true})
      for (const double dropout : {0.0, 0.3}) {
        const int64_t H = 2;
        const Tensor qkv = leaf({9, 3 * H * 4}, 1);
        PackedAttentionOptions options = jagged(name.c_str(), true);
        options.attention.q_offsets = options.attention.k_offsets = offsets({0, 5, 5, 9});
        options.attention.dropout = dropout, options.attention.seed = at::full({1}, 7, at::kLong);
        options.statistics = statistics;
        const PackedAttentionResult got = packed_attention(qkv, H, options);
        const auto parts = qkv.chunk(3, 1);
        const AttentionResult expected = separate(parts[0], parts[1], parts[2], H, options.attention);
        EXPECT_LT(largest_difference(got.out, expected.out.squeeze(0).transpose(0, 1).flatten(1)), 1e-13) << name;
        EXPECT_EQ(got.weight_sum.defined(), statistics);
        const auto total = [&](const Tensor& out, const Tensor& sum, const Tensor& log) {
          return statistics ? weighted(out) + weighted(sum) + weighted(log.sin()) : weighted(out);
        };
        const Tensor a = torch::autograd::grad({total(got.out, got.weight_sum, got.weight_log)}, {qkv})[0];
        const Tensor b =
            torch::autograd::grad({total(expected.out.squeeze(0).transpose(0, 1), expected.weight_sum, expected.weight_log)}, {qkv})[0];
        EXPECT_LT(largest_difference(a, b), 1e-11) << name;
      }
}

TEST(PackedAttention, ToAContextIsAttentionOfTheParts) {
  for (const std::string& name : preset_names())
    for (const bool statistics : {false, true}) {
      const int64_t H = 3;
      const Tensor q = leaf({7, H * 5}, 1), kv = leaf({11, 2 * H * 5}, 2);
      PackedAttentionOptions options = jagged(name.c_str(), false);
      options.attention.q_offsets = offsets({0, 4, 7}), options.attention.k_offsets = offsets({0, 2, 11});
      options.statistics = statistics;
      const PackedAttentionResult got = packed_attention(q, kv, H, options);
      const auto parts = kv.chunk(2, 1);
      const AttentionResult expected = separate(q, parts[0], parts[1], H, options.attention);
      EXPECT_LT(largest_difference(got.out, expected.out.squeeze(0).transpose(0, 1).flatten(1)), 1e-13) << name;
      // Only the statistics used: the result has no gradient then.
      const auto total = [&](const Tensor& out, const Tensor& sum, const Tensor& log) {
        return statistics ? weighted(sum) + weighted(log) : weighted(out);
      };
      const auto a = torch::autograd::grad({total(got.out, got.weight_sum, got.weight_log)}, {q, kv});
      const auto b = torch::autograd::grad({total(expected.out.squeeze(0).transpose(0, 1), expected.weight_sum, expected.weight_log)},
                                           {q, kv}, {}, c10::nullopt, false, true);
      for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(a[i], b[i].defined() ? b[i] : at::zeros_like(a[i])), 1e-11) << name << i;
    }
}

TEST(PackedAttention, Gradients) {
  for (const char* name : {"reluformer", "softmax", "silu"})
    for (const bool learned : {false, true}) {
      if (learned && std::string(name) == "softmax") continue;
      const auto f = [&](const std::vector<Tensor>& in) {
        PackedAttentionOptions options = jagged(name, false);
        if (learned) options.attention.gain = in[2], options.attention.bias = in[3], options.attention.alpha = in[4];
        options.attention.q_offsets = offsets({0, 3, 5}), options.attention.k_offsets = offsets({0, 2, 6});
        options.statistics = true;
        const PackedAttentionResult r = packed_attention(in[0], in[1], 2, options);
        return weighted(r.out) + weighted(r.weight_sum) + weighted(r.weight_log);
      };
      std::vector<Tensor> in = {leaf({5, 8}, 1), leaf({6, 16}, 2)};
      if (learned) in.insert(in.end(), {leaf({2}, 3), leaf({2}, 4), leaf({2}, 5)});
      expect_gradients(f, in);
    }
}

// Scores far from the thresholds: differences of step 1e-6 cross none of these.
TEST(PackedAttention, GradientsOfSparsemaxAndEntmax) {
  for (const SparseRule rule : {SparseRule::sparsemax, SparseRule::entmax15})
    for (const double dropout : {0.0, 0.4}) {
      PackedAttentionOptions options;
      options.sparse = rule;
      options.attention.dropout = dropout, options.attention.seed = at::full({1}, 3, at::kLong);
      options.attention.causal = true;
      options.attention.q_offsets = options.attention.k_offsets = offsets({0, 6, 9});
      expect_gradients([&](const auto& in) { return weighted(packed_attention(in[0], 2, options).out); }, {leaf({9, 3 * 2 * 4}, 1)});
      options.attention.causal = false;
      options.attention.q_offsets = offsets({0, 2, 4}), options.attention.k_offsets = offsets({0, 7, 8});
      expect_gradients([&](const auto& in) { return weighted(packed_attention(in[0], in[1], 1, options).out); },
                       {leaf({4, 5}, 2, at::kDouble, 1.5), leaf({8, 10}, 3)});
    }
}

TEST(PackedAttention, Float32FollowsFloat64) {
  for (const std::optional<SparseRule>& rule : kEveryRule) {
    PackedAttentionOptions options;
    options.sparse = rule;
    options.attention.q_offsets = options.attention.k_offsets = offsets({0, 20, 50});
    Tensor out[2], grad[2];
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const Tensor qkv = leaf({50, 3 * 2 * 16}, 1, dtype);
      const size_t at = dtype == at::kFloat;
      out[at] = packed_attention(qkv, 2, options).out;
      grad[at] = torch::autograd::grad({weighted(out[at])}, {qkv})[0];
    }
    EXPECT_LT(largest_difference(out[1], out[0]), 2e-6);
    EXPECT_LT(largest_difference(grad[1], grad[0]), 2e-5);
  }
}

TEST(AttentionWithoutGradient, IsTheSame) {
  const at::NoGradGuard guard;
  const Tensor q = leaf({4, 2 * 5}, 1), kv = leaf({6, 2 * 2 * 5}, 2);
  for (const std::optional<SparseRule>& rule : kEveryRule) {
    PackedAttentionOptions options;
    options.sparse = rule;
    const auto parts = kv.chunk(2, 1);
    const Tensor got = attention_without_gradient(by_head(q, 2), by_head(parts[0], 2), by_head(parts[1], 2), options);
    EXPECT_TRUE(at::equal(got.squeeze(0).transpose(0, 1).flatten(1), packed_attention(q, kv, 2, options).out));
  }
}

// Batched, with and without norms: the same by the op on separate tensors.
Tensor plain_self_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options, const QkNorm& norm) {
  const int64_t B = qkv.size(0), L = qkv.size(1), D = qkv.size(2) / (3 * heads);
  const Tensor parts = qkv.view({B, L, 3, heads, D}).permute({2, 0, 3, 1, 4});
  Tensor q = parts[0], k = parts[1];
  if (norm.defined()) {
    q = at::layer_norm(q, {D}, norm.q_weight, norm.q_bias, norm.eps);
    k = at::layer_norm(k, {D}, norm.k_weight, norm.k_bias, norm.eps);
  }
  return attention(q, k, parts[2], options).transpose(1, 2).reshape({B, L, heads * D});
}

QkNorm some_norm(int64_t D) { return {leaf({D}, 12), leaf({D}, 13), leaf({D}, 14), leaf({D}, 15)}; }
std::vector<Tensor> with_norm(std::vector<Tensor> inputs, const QkNorm& norm) {
  if (norm.defined()) inputs.insert(inputs.end(), {norm.q_weight, norm.q_bias, norm.k_weight, norm.k_bias});
  return inputs;
}

TEST(PackedAttention, BatchedEqualsTheOpOnSeparateTensors) {
  for (const char* name : {"relu-vit", "softmax", "sigmoid"})
    for (const bool normed : {false, true}) {
      const Tensor qkv = leaf({2, 9, 3 * 2 * 5}, 1);
      PackedAttentionOptions options;
      options.attention = preset(name);
      if (normed) options.norm = some_norm(5);
      const Tensor packed = packed_attention(qkv, 2, options).out, plain = plain_self_attention(qkv, 2, options.attention, options.norm);
      EXPECT_LT(largest_difference(packed, plain), 1e-12);
      const std::vector<Tensor> inputs = with_norm({qkv}, options.norm);
      const auto got = torch::autograd::grad({weighted(packed)}, inputs), expected = torch::autograd::grad({weighted(plain)}, inputs);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(largest_difference(got[i], expected[i]), 1e-12) << name << " input " << i;
    }
}

// Sequences of one length, one after another, are the rows of a batch; to itself and to a context, with norms.
TEST(PackedAttention, JaggedIsBatched) {
  const int64_t B = 3, L = 4, S = 5, H = 2, D = 6;
  const Tensor qkv = leaf({B, L, 3 * H * D}, 1), q = leaf({B, L, H * D}, 2), kv = leaf({B, S, 2 * H * D}, 3);
  for (const bool normed : {false, true}) {
    PackedAttentionOptions batched;
    if (normed) batched.norm = some_norm(D);
    PackedAttentionOptions jagged = batched;
    jagged.attention.q_offsets = jagged.attention.k_offsets = at::arange(0, (B + 1) * L, L, at::kLong);
    const Tensor self = packed_attention(qkv, H, batched).out, rows = packed_attention(qkv.flatten(0, 1), H, jagged).out;
    EXPECT_TRUE(at::equal(self.flatten(0, 1), rows));
    const auto a = torch::autograd::grad({weighted(self)}, with_norm({qkv}, batched.norm)),
               b = torch::autograd::grad({weighted(rows)}, with_norm({qkv}, batched.norm));
    for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(largest_difference(a[i], b[i]), 1e-13) << i;

    jagged.attention.k_offsets = at::arange(0, (B + 1) * S, S, at::kLong);
    const Tensor cross = packed_attention(q, kv, H, batched).out,
                 cross_rows = packed_attention(q.flatten(0, 1), kv.flatten(0, 1), H, jagged).out;
    EXPECT_TRUE(at::equal(cross.flatten(0, 1), cross_rows));
    const auto c = torch::autograd::grad({weighted(cross)}, with_norm({q, kv}, batched.norm)),
               d = torch::autograd::grad({weighted(cross_rows)}, with_norm({q, kv}, batched.norm));
    for (size_t i = 0; i < c.size(); ++i) EXPECT_LT(largest_difference(c[i], d[i]), 1e-13) << i;
  }
}

TEST(PackedAttention, GradientsOfWhatIsLearned) {
  const auto options_of = [](const std::vector<Tensor>& in, size_t first) {
    PackedAttentionOptions options;
    options.attention = preset("silu");
    options.attention.gain = in[first], options.attention.bias = in[first + 1], options.attention.alpha = in[first + 2];
    options.norm = {in[first + 3], in[first + 4], in[first + 5], in[first + 6]};
    return options;
  };
  const std::vector<Tensor> learned = {leaf({2}, 2), leaf({2}, 3), leaf({2}, 4), leaf({4}, 5), leaf({4}, 6), leaf({4}, 7), leaf({4}, 8)};
  std::vector<Tensor> self = {leaf({1, 5, 3 * 2 * 4}, 1)}, cross = {leaf({2, 3, 2 * 4}, 1), leaf({2, 4, 2 * 2 * 4}, 9)};
  self.insert(self.end(), learned.begin(), learned.end());
  cross.insert(cross.end(), learned.begin(), learned.end());
  expect_gradients([&](const auto& in) { return weighted(packed_attention(in[0], 2, options_of(in, 1)).out); }, self);
  expect_gradients([&](const auto& in) { return weighted(packed_attention(in[0], in[1], 2, options_of(in, 2)).out); }, cross);
}

// Nothing to attend with is a result without rows, not an error; so is nothing to attend to, and the result is zero.
TEST(PackedAttention, WithoutRows) {
  const int64_t H = 2, D = 4;
  for (const std::optional<SparseRule>& rule : kEveryRule)
    for (const bool normed : {false, true}) {
      PackedAttentionOptions options;
      options.sparse = rule;
      if (normed) options.norm = some_norm(D);
      for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{0, 3 * H * D}, {2, 0, 3 * H * D}, {0, 5, 3 * H * D}}) {
        const Tensor qkv = leaf(sizes, 1), out = packed_attention(qkv, H, options).out;
        std::vector<int64_t> expected = sizes;
        expected.back() = H * D;
        EXPECT_EQ(out.sizes(), at::IntArrayRef(expected));
        const auto gradients = torch::autograd::grad({out.sum()}, with_norm({qkv}, options.norm));
        EXPECT_EQ(gradients[0].sizes(), qkv.sizes());
        for (size_t i = 1; i < gradients.size(); ++i) EXPECT_EQ(gradients[i].abs().max().item<double>(), 0) << i;
      }
      const Tensor q = leaf({3, H * D}, 1), kv = leaf({0, 2 * H * D}, 2), out = packed_attention(q, kv, H, options).out;
      EXPECT_EQ(out.abs().max().item<double>(), 0);
      const auto gradients = torch::autograd::grad({out.sum()}, {q, kv});
      EXPECT_EQ(gradients[0].abs().max().item<double>(), 0);
      EXPECT_EQ(gradients[1].sizes(), kv.sizes());
    }
}

TEST(NormaliseHeads, IsTheLayerNormOfOnePart) {
  const at::NoGradGuard guard;
  for (const auto& [parts, part] : {std::pair<int64_t, int64_t>{1, 0}, {2, 0}, {3, 1}}) {
    const int64_t H = 2, D = 5;
    const Tensor x = leaf({4, parts * H * D}, 1).detach(), w = leaf({D}, 2), b = leaf({D}, 3);
    std::vector<Tensor> pieces = x.chunk(parts, 1);
    pieces[static_cast<size_t>(part)] = at::layer_norm(pieces[static_cast<size_t>(part)].unflatten(1, {H, D}), {D}, w, b, 1e-6).flatten(1);
    const Tensor expected = at::cat(pieces, 1);
    normalise_heads_(x, parts, part, H, w, b, 1e-6);
    EXPECT_LT(largest_difference(x, expected), 1e-12);
  }
}

TEST(PackedAttention, ErrorsNameTheShapes) {
  EXPECT_EQ(error_of([] {
              packed_attention(leaf({4, 10}, 1), 2, {});
            }),
            "hinge::packed_attention: qkv must be [B, L, 3 H D] or [L, 3 H D] with H = 2, got [4, 10]");
  EXPECT_EQ(error_of([] { packed_attention(leaf({12}, 1), 2, {}); }),
            "hinge::packed_attention: qkv must have 3 dimensions, or 2 if it is jagged, got the shape [12]");
  EXPECT_EQ(error_of([] {
              packed_attention(leaf({4, 4}, 1), leaf({4, 6}, 2), 2, {});
            }),
            "hinge::packed_attention: q must be [B, L, H D] and kv [B, S, 2 H D], or [L, H D] and [S, 2 H D], of one dtype with H = 2, got "
            "[4, 4] and [4, 6]");
  PackedAttentionOptions options;
  options.norm.q_weight = leaf({2}, 3);
  EXPECT_EQ(error_of([&] {
              packed_attention(leaf({4, 12}, 1), 2, options);
            }),
            "hinge::packed_attention: a norm needs weight and bias for queries and for keys; q_bias is undefined");
  PackedAttentionOptions sparse;
  sparse.sparse = SparseRule::sparsemax, sparse.statistics = true;
  EXPECT_EQ(error_of([&] {
              packed_attention(leaf({4, 12}, 1), 2, sparse);
            }),
            "hinge::packed_attention: sparsemax and entmax15 have no differentiable statistics");
}

}  // namespace
}  // namespace hinge
