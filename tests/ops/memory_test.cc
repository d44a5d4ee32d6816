// Reads from memories: values against plain ATen formulas or the ops on separate tensors, gradients against differences, errors.
#include "hinge/ops/memory.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <string>

#include "gradcheck.h"
#include "hinge/kernels/dropout.h"
#include "op_error.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::Activation;
using testing::error_of;
using testing::expect_gradients;

Tensor leaf(at::IntArrayRef sizes, int64_t seed, double spread = 1, at::ScalarType dtype = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return (at::randn(sizes, generator, at::kDouble) * spread).to(dtype).requires_grad_(true);
}

// A sum with weights of its own for every element, so that no gradient can hide.
Tensor weighted(const Tensor& y) { return (y * at::linspace(-1, 1, y.numel(), y.options().requires_grad(false)).view_as(y)).sum(); }

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

Tensor offsets(std::initializer_list<int64_t> values) { return at::tensor(values, at::kLong); }

// ---- local memories

Tensor by_head(const Tensor& rows, int64_t heads) { return rows.unflatten(1, {heads, -1}).transpose(0, 1).unsqueeze(0); }

// The same of separate tensors, by the engine's own op.
AttentionResult separate(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, const AttentionOptions& options) {
  return attention_with_statistics(by_head(q, heads), by_head(k, heads), by_head(v, heads), options);
}

ReadOptions jagged(const char* preset_name, bool causal) {
  ReadOptions options;
  options.attention = preset(preset_name);
  options.attention.causal = causal;
  return options;
}

TEST(ReadMemory, OfTheReadersIsAttentionOfThePackedParts) {
  for (const std::string& name : preset_names())
    for (const bool statistics : {false, true})
      for (const double dropout : {0.0, 0.3}) {
        const int64_t H = 2;
        const Tensor qkv = leaf({9, 3 * H * 4}, 1);
        ReadOptions options = jagged(name.c_str(), true);
        options.attention.q_offsets = options.attention.k_offsets = offsets({0, 5, 5, 9});
        options.attention.dropout = dropout, options.attention.seed = at::full({1}, 7, at::kLong);
        options.statistics = statistics;
        const MemoryRead got = read_memory(qkv, H, options);
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

TEST(ReadMemory, OfOthersIsAttentionOfThePackedParts) {
  for (const std::string& name : preset_names())
    for (const bool statistics : {false, true}) {
      const int64_t H = 3;
      const Tensor q = leaf({7, H * 5}, 1), kv = leaf({11, 2 * H * 5}, 2);
      ReadOptions options = jagged(name.c_str(), false);
      options.attention.q_offsets = offsets({0, 4, 7}), options.attention.k_offsets = offsets({0, 2, 11});
      options.statistics = statistics;
      const MemoryRead got = read_memory(q, kv, H, options);
      const auto parts = kv.chunk(2, 1);
      const AttentionResult expected = separate(q, parts[0], parts[1], H, options.attention);
      EXPECT_LT(largest_difference(got.out, expected.out.squeeze(0).transpose(0, 1).flatten(1)), 1e-13) << name;
      // Only the statistics used: what was read has no gradient then.
      const auto total = [&](const Tensor& out, const Tensor& sum, const Tensor& log) {
        return statistics ? weighted(sum) + weighted(log) : weighted(out);
      };
      const auto a = torch::autograd::grad({total(got.out, got.weight_sum, got.weight_log)}, {q, kv});
      const auto b = torch::autograd::grad({total(expected.out.squeeze(0).transpose(0, 1), expected.weight_sum, expected.weight_log)},
                                           {q, kv}, {}, c10::nullopt, false, true);
      for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(a[i], b[i].defined() ? b[i] : at::zeros_like(a[i])), 1e-11) << name << i;
    }
}

TEST(ReadMemory, Gradients) {
  for (const char* name : {"reluformer", "softmax", "silu"})
    for (const bool learned : {false, true}) {
      if (learned && std::string(name) == "softmax") continue;
      const auto f = [&](const std::vector<Tensor>& in) {
        ReadOptions options = jagged(name, false);
        if (learned) options.attention.gain = in[2], options.attention.bias = in[3], options.attention.alpha = in[4];
        options.attention.q_offsets = offsets({0, 3, 5}), options.attention.k_offsets = offsets({0, 2, 6});
        options.statistics = true;
        const MemoryRead r = read_memory(in[0], in[1], 2, options);
        return weighted(r.out) + weighted(r.weight_sum) + weighted(r.weight_log);
      };
      std::vector<Tensor> in = {leaf({5, 8}, 1), leaf({6, 16}, 2)};
      if (learned) in.insert(in.end(), {leaf({2}, 3), leaf({2}, 4), leaf({2}, 5)});
      expect_gradients(f, in);
    }
}

// Scores far from the thresholds: differences of step 1e-6 cross none of these.
TEST(ReadMemory, GradientsOfSparsemaxAndEntmax) {
  for (const Read read : {Read::sparsemax, Read::entmax15})
    for (const double dropout : {0.0, 0.4}) {
      ReadOptions options;
      options.read = read;
      options.attention.dropout = dropout, options.attention.seed = at::full({1}, 3, at::kLong);
      options.attention.causal = true;
      options.attention.q_offsets = options.attention.k_offsets = offsets({0, 6, 9});
      expect_gradients([&](const auto& in) { return weighted(read_memory(in[0], 2, options).out); }, {leaf({9, 3 * 2 * 4}, 1)});
      options.attention.causal = false;
      options.attention.q_offsets = offsets({0, 2, 4}), options.attention.k_offsets = offsets({0, 7, 8});
      expect_gradients([&](const auto& in) { return weighted(read_memory(in[0], in[1], 1, options).out); },
                       {leaf({4, 5}, 2, 1.5), leaf({8, 10}, 3)});
    }
}

TEST(ReadMemory, Float32FollowsFloat64) {
  for (const Read read : {Read::engine, Read::sparsemax, Read::entmax15}) {
    ReadOptions options;
    options.read = read;
    options.attention.q_offsets = options.attention.k_offsets = offsets({0, 20, 50});
    Tensor out[2], grad[2];
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const Tensor qkv = leaf({50, 3 * 2 * 16}, 1, 1, dtype);
      const size_t at = dtype == at::kFloat;
      out[at] = read_memory(qkv, 2, options).out;
      grad[at] = torch::autograd::grad({weighted(out[at])}, {qkv})[0];
    }
    EXPECT_LT(largest_difference(out[1], out[0]), 2e-6);
    EXPECT_LT(largest_difference(grad[1], grad[0]), 2e-5);
  }
}

TEST(ReadWithoutGradient, IsTheSameRead) {
  const at::NoGradGuard guard;
  const Tensor q = leaf({4, 2 * 5}, 1), kv = leaf({6, 2 * 2 * 5}, 2);
  for (const Read read : {Read::engine, Read::sparsemax, Read::entmax15}) {
    ReadOptions options;
    options.read = read;
    const auto parts = kv.chunk(2, 1);
    const Tensor got = read_without_gradient(by_head(q, 2), by_head(parts[0], 2), by_head(parts[1], 2), options);
    EXPECT_TRUE(at::equal(got.squeeze(0).transpose(0, 1).flatten(1), read_memory(q, kv, 2, options).out));
  }
}

// ---- global memories

Tensor plain_phi(Activation phi, const Tensor& u) {
  switch (phi) {
    case Activation::relu: return at::relu(u);
    case Activation::gelu: return at::gelu(u);
    case Activation::silu: return at::silu(u);
    default: return at::softmax(u, 1);
  }
}

// Of what dropout multiplies rows by.
Tensor mask(int64_t rows, int64_t width, double dropout, uint64_t seed) {
  Tensor m = at::empty({rows, width}, at::kDouble);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; ++j)
      m[i][j] = kernels::dropout_keeps(seed, kernels::dropout_threshold(dropout), 0, i, j) ? kernels::dropout_scale(dropout) : 0.0;
  return m;
}

TEST(GlobalMemory, ValuesAndGradients) {
  for (const Activation phi : {Activation::relu, Activation::gelu, Activation::silu, Activation::softmax})
    for (const double dropout : {0.0, 0.3}) {
      const std::vector<Tensor> in = {leaf({7, 5}, 1), leaf({11, 5}, 2), leaf({11}, 3), leaf({6, 11}, 4), leaf({6}, 5), leaf({7, 6}, 6)};
      const auto read = [&](const std::vector<Tensor>& t) {
        return read_global_memory(phi, t[0], t[1], t[2], t[3], t[4], t[5], dropout, 9);
      };
      const Tensor scores = plain_phi(phi, at::matmul(in[0], in[1].t()) + in[2]) * mask(7, 11, dropout, 9);
      const Tensor expected = at::matmul(scores, in[3].t()) + in[4] + in[5];
      EXPECT_LT(largest_difference(read(in), expected), 1e-13);
      {
        const at::NoGradGuard guard;  // works in place there, on its own memory only
        EXPECT_LT(largest_difference(read(in), expected), 1e-13);
      }
      const auto got = torch::autograd::grad({weighted(read(in))}, in), plain = torch::autograd::grad({weighted(expected)}, in);
      for (size_t i = 0; i < in.size(); ++i) EXPECT_LT(largest_difference(got[i], plain[i]), 1e-12) << i;
      expect_gradients([&](const auto& t) { return weighted(read(t)); }, in);
      // Without bias and residual.
      const Tensor bare = read_global_memory(phi, in[0], in[1], in[2], in[3], {}, {}, dropout, 9);
      EXPECT_LT(largest_difference(bare, at::matmul(scores, in[3].t())), 1e-13);
      torch::autograd::grad({weighted(bare)}, {in[0], in[3]});
      const auto single = [](const Tensor& t) { return t.detach().to(at::kFloat); };
      EXPECT_LT(
          largest_difference(read({single(in[0]), single(in[1]), single(in[2]), single(in[3]), single(in[4]), single(in[5])}), expected),
          2e-5);
    }
}

TEST(GlobalMemory, RowsOfSeveralDimensions) {
  const std::vector<Tensor> in = {leaf({2, 9, 5}, 1), leaf({11, 5}, 2), leaf({11}, 3), leaf({6, 11}, 4), leaf({6}, 5), leaf({2, 9, 6}, 6)};
  const Tensor got = read_global_memory(Activation::gelu, in[0], in[1], in[2], in[3], in[4], in[5]);
  const Tensor expected = at::matmul(at::gelu(at::matmul(in[0], in[1].t()) + in[2]), in[3].t()) + in[4] + in[5];
  EXPECT_LT(largest_difference(got, expected), 1e-13);
  const auto gradients = torch::autograd::grad({weighted(got)}, in), plain = torch::autograd::grad({weighted(expected)}, in);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_LT(largest_difference(gradients[i], plain[i]), 1e-12) << i;
}

// ---- regulariser

TEST(ReluformerRegulariser, IsItsFormulaFromTheWeights) {
  const int64_t H = 2;
  const Tensor qkv = leaf({9, 3 * H * 4}, 5);
  ReadOptions options = jagged("reluformer", true);
  options.attention.q_offsets = options.attention.k_offsets = offsets({0, 5, 9});
  options.statistics = true;
  const MemoryRead read = read_memory(qkv, H, options);
  const Tensor n = visible_slots(options.attention.q_offsets, options.attention.k_offsets, true);
  EXPECT_TRUE(at::equal(n, at::tensor({1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0}, at::kDouble)));
  const Tensor got = reluformer_regulariser(read.weight_sum, read.weight_log, n);

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
  expect_gradients([&](const auto& in) { return reluformer_regulariser(in[0], in[1], n); }, {sum, log}, 1e-6);
}

// ---- errors

TEST(Memory, ErrorsNameTheShapes) {
  EXPECT_EQ(error_of([] { read_memory(leaf({4, 10}, 1), 2, {}); }), "hinge::read_memory: qkv must be [T, 3 H D] with H = 2, got [4, 10]");
  EXPECT_EQ(error_of([] {
              read_memory(leaf({4, 4}, 1), leaf({4, 6}, 2), 2, {});
            }),
            "hinge::read_memory: q must be [T, H D] and kv [S, 2 H D] of one dtype with H = 2, got [4, 4] and [4, 6]");
  ReadOptions sparse;
  sparse.read = Read::sparsemax, sparse.statistics = true;
  EXPECT_EQ(error_of([&] {
              read_memory(leaf({4, 12}, 1), 2, sparse);
            }),
            "hinge::read_memory: sparsemax and entmax15 have no differentiable statistics");
  EXPECT_EQ(error_of([] {
              read_global_memory(Activation::relu, leaf({2, 3}, 1), leaf({4, 5}, 2), leaf({4}, 3), leaf({3, 4}, 4), {});
            }),
            "hinge::read_global_memory: x [T, C], keys [W, C] and values [N, W] do not fit: [2, 3], [4, 5] and [3, 4]");
  EXPECT_EQ(error_of([] {
              read_global_memory(Activation::relu, leaf({2, 3}, 1), leaf({4, 3}, 2), leaf({4}, 3), leaf({3, 4}, 4), {}, {}, 1.0);
            }),
            "hinge::read_global_memory: dropout must be in [0, 1), got 1");
  EXPECT_EQ(
      error_of([] {
        read_global_memory(Activation::relu, leaf({2, 9, 3}, 1), leaf({4, 3}, 2), leaf({4}, 3), leaf({5, 4}, 4), {}, leaf({9, 2, 5}, 5));
      }),
      "hinge::read_global_memory: residual must have the rows of x [2, 9, 3], got [9, 2, 5]");
  EXPECT_NE(error_of([] {
              reluformer_regulariser(leaf({1, 2, 3}, 1), leaf({1, 2, 3}, 2), at::ones({2}, at::kDouble));
            }).find("visible float64 [T]"),
            std::string::npos);
  const auto error_of_slots = [](std::vector<int64_t> readers, std::vector<int64_t> slots) {
    return error_of([&] { visible_slots(at::tensor(readers, at::kLong), at::tensor(slots, at::kLong), true); });
  };
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 900, 3}, {-5, 1, 3}, {1, 2, 3}})
    EXPECT_EQ(error_of_slots(wrong, {0, 1, 2}), "hinge::visible_slots: readers must start with 0 and never decrease");
  EXPECT_EQ(error_of_slots({}, {}), "hinge::visible_slots: readers must start with 0 and never decrease");
  EXPECT_EQ(error_of_slots({0, 1, 3}, {0, 2, 1}), "hinge::visible_slots: slots must start with 0 and never decrease");
}

}  // namespace
}  // namespace hinge
