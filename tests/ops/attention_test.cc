// The attention op on LibTorch: values against plain ATen formulas in float64, gradients, memory order, errors, and the composite path
// against the fused one over all options. The kernels themselves are tested in tests/kernels.
#include "hinge/ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "op_error.h"
#include "ops/attention_impl.h"
#include "threads.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::Activation;
using kernels::IdentityOrder;
using kernels::LengthRule;
using testing::error_of;

constexpr Activation kAll[] = {
#define HINGE_EACH(name, cls) Activation::name,
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_EACH)
#undef HINGE_EACH
        Activation::softmax};

// Leaves of an autograd graph, from a fixed seed.
Tensor leaf(at::IntArrayRef sizes, int64_t seed, at::ScalarType dtype = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(sizes, generator, at::kDouble).to(dtype).requires_grad_(true);
}

Tensor integers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() ? (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() : 0.0;
}

std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({loss}, inputs, {}, c10::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
}

// relu(q k^T / sqrt D) / L v and its like: the published formulas, written down once more.
Tensor plain(Activation h, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor x = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  const double n = static_cast<double>(k.size(2));
  switch (h) {
    case Activation::relu: return at::matmul(at::relu(x) / n, v);
    case Activation::relu2: return at::matmul(at::relu(x) * at::relu(x) / n, v);
    case Activation::gelu: return at::matmul(at::gelu(x, "none") / n, v);
    case Activation::gelu_tanh: return at::matmul(at::gelu(x, "tanh") / n, v);
    case Activation::softplus: return at::matmul(at::log1p(at::exp(x)) / n, v);
    case Activation::identity: return at::matmul(x / n, v);
    case Activation::relu6: return at::matmul(at::hardtanh(x, 0, 6) / n, v);
    case Activation::sigmoid: return at::matmul(at::sigmoid(x) / n, v);
    case Activation::silu: return at::matmul(at::silu(x) / n, v);
    case Activation::softmax: return at::matmul(at::softmax(x, -1), v);
  }
  return {};
}

TEST(Attention, EqualsThePlainFormulaInValueAndGradient) {
  for (const Activation h : kAll)
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      SCOPED_TRACE(std::string(kernels::activation_name(h)) + (dtype == at::kFloat ? " float32" : " float64"));
      const double tolerance = dtype == at::kFloat ? 2e-5 : 1e-12;
      AttentionOptions options;
      options.h = h;
      const std::vector<Tensor> inputs = {leaf({2, 3, 19, 24}, 1, dtype), leaf({2, 3, 37, 24}, 2, dtype), leaf({2, 3, 37, 24}, 3, dtype)};
      std::vector<Tensor> exact;
      for (const Tensor& input : inputs) exact.push_back(input.detach().to(at::kDouble).requires_grad_(true));

      const Tensor out = attention(inputs[0], inputs[1], inputs[2], options);
      const Tensor expected = plain(h, exact[0], exact[1], exact[2]);
      EXPECT_EQ(out.scalar_type(), dtype);
      EXPECT_LT(largest_difference(out, expected), tolerance);

      const Tensor direction = leaf({2, 3, 19, 24}, 4).detach();
      const std::vector<Tensor> grads = gradients((out * direction.to(dtype)).sum(), inputs);
      const std::vector<Tensor> expected_grads = gradients((expected * direction).sum(), exact);
      for (size_t i = 0; i < grads.size(); ++i) EXPECT_LT(largest_difference(grads[i], expected_grads[i]), 10 * tolerance) << i;
    }
}

// One set of options, its name, and inputs that fit it.
struct Case {
  std::string name;
  AttentionOptions options;
  int64_t B = 2, Hq = 4, Hkv = 2, Lq = 13, Lk = 21, D = 8, Dv = 8;
};

Tensor random_bools(at::IntArrayRef sizes) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{99});
  return at::rand(sizes, generator) > 0.4;
}

std::vector<Case> visibility_cases() {
  std::vector<Case> cases(13);
  cases[0].name = "all";
  cases[1].name = "causal";
  cases[1].options.causal = true;
  cases[2].name = "causal, more queries than keys";
  cases[2].options.causal = true;
  cases[2].Lq = 17;
  cases[2].Lk = 9;
  cases[3].name = "key lengths";
  cases[3].options.key_lengths = integers({0, 11});
  cases[4].name = "key lengths, causal";
  cases[4].options.key_lengths = integers({21, 5});
  cases[4].options.causal = true;
  cases[5].name = "jagged";
  cases[6].name = "jagged, causal";
  cases[6].options.causal = true;
  cases[7].name = "window";
  cases[7].options.window = Window{4, 2};
  cases[7].Dv = 5;
  cases[8].name = "causal window, key lengths";
  cases[8].options.window = Window{3, -1};
  cases[8].options.causal = true;
  cases[8].options.key_lengths = integers({21, 16});
  cases[9].name = "boolean mask";
  cases[9].options.attn_mask = random_bools({2, 1, 13, 21});
  cases[9].Dv = 19;
  cases[10].name = "additive mask, causal";
  cases[10].options.attn_mask =
      leaf({4, 13, 21}, 21).detach().masked_fill(random_bools({13, 21}).logical_not(), -std::numeric_limits<double>::infinity());
  cases[10].options.causal = true;
  cases[11].name = "hstu";
  cases[11].options.num_targets = integers({3, 0});
  cases[11].options.contextual_seq_len = 2;
  cases[11].Lq = cases[11].Lk = 17;
  cases[12].name = "hstu, jagged";
  cases[12].options.num_targets = integers({1, 0, 0, 5});
  cases[12].options.max_attn_len = 3;
  cases[12].options.min_full_attn_seq_len = 2;
  cases[12].Lq = 21;
  for (size_t i : {11, 12}) cases[i].options.causal = true;
  for (size_t i : {5, 6, 12}) {
    cases[i].B = 1;
    cases[i].options.q_offsets = integers({0, 4, 4, 9, 13});
    cases[i].options.k_offsets = integers({0, 3, 7, 7, 21});
  }
  cases[12].options.q_offsets = cases[12].options.k_offsets;
  return cases;
}

// Every h with every visibility, length rule and parameter that it can have.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Activation h : kAll)
    for (const Case& each : visibility_cases())
      for (const LengthRule rule : {LengthRule::none, LengthRule::fixed, LengthRule::keys, LengthRule::visible})
        for (const bool dropout : {false, true}) {
          if (h == Activation::softmax && rule != LengthRule::keys) continue;
          Case c = each;
          c.options.h = h;
          c.options.scale = 0.4;
          c.options.length_rule = rule;
          if (h != Activation::softmax) {
            if (rule == LengthRule::fixed) c.options.length_n = 7.5;
            c.options.bias_log_n = rule == LengthRule::visible;
            c.options.gain = leaf({c.Hq}, 11);
            c.options.bias = leaf({c.Hq}, 12);
            c.options.alpha = leaf({1}, 13);
          }
          if (dropout) {
            c.options.dropout = 0.3;
            c.options.seed = integers({0x123456789abcdef});
          }
          c.name = std::string(kernels::activation_name(h)) + ", " + c.name + ", rule " + std::to_string(static_cast<int>(rule)) +
                   (dropout ? ", dropout" : "");
          cases.push_back(c);
        }
  return cases;
}

TEST(Attention, CompositePathEqualsFusedOne) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const Tensor q = leaf({c.B, c.Hq, c.Lq, c.D}, 1).detach(), k = leaf({c.B, c.Hkv, c.Lk, c.D}, 2).detach(),
                 v = leaf({c.B, c.Hkv, c.Lk, c.Dv}, 3).detach();
    const AttentionOutputs fused = attention_forward_cpu(q, k, v, c.options, true);
    const AttentionOutputs composite = attention_forward_composite(q, k, v, c.options, true);
    EXPECT_LT(largest_difference(std::get<0>(fused), std::get<0>(composite)), 1e-11) << "out";
    EXPECT_LT(largest_difference(std::get<1>(fused), std::get<1>(composite)), 1e-11) << "weight_sum";
    EXPECT_LT(largest_difference(std::get<2>(fused), std::get<2>(composite)), 1e-11) << "weight_log";
    // ATen's gelu_tanh is exactly 0 where its tanh rounds to -1; ours is not.
    if (c.options.h != Activation::gelu_tanh) {
      EXPECT_EQ(largest_difference(std::get<3>(fused), std::get<3>(composite)), 0) << "zero_share";
    }
    EXPECT_TRUE(at::allclose(std::get<5>(fused), std::get<5>(composite), 1e-12, 1e-12)) << "lse";

    AttentionBackwardInputs inputs;
    inputs.grad_out = leaf({c.B, c.Hq, c.Lq, c.Dv}, 4).detach();
    inputs.grad_weight_sum = leaf({c.B, c.Hq, c.Lq}, 5).detach();
    inputs.grad_weight_log = leaf({c.B, c.Hq, c.Lq}, 6).detach();
    inputs.out = std::get<0>(fused);
    inputs.lse = std::get<5>(fused);
    if (c.options.h == Activation::softmax)
      inputs.weight_log = std::get<2>(fused);
    else
      inputs.out = inputs.lse = Tensor();
    const AttentionGradients a = attention_backward_cpu(q, k, v, inputs, c.options);
    const AttentionGradients b = attention_backward_composite(q, k, v, inputs, c.options);
    EXPECT_LT(largest_difference(std::get<0>(a), std::get<0>(b)), 1e-10) << "dq";
    EXPECT_LT(largest_difference(std::get<1>(a), std::get<1>(b)), 1e-10) << "dk";
    EXPECT_LT(largest_difference(std::get<2>(a), std::get<2>(b)), 1e-10) << "dv";
    EXPECT_LT(largest_difference(std::get<3>(a), std::get<3>(b)), 1e-9) << "dgain";
    EXPECT_LT(largest_difference(std::get<4>(a), std::get<4>(b)), 1e-9) << "dbias";
    EXPECT_LT(largest_difference(std::get<5>(a), std::get<5>(b)), 1e-9) << "dalpha";
    EXPECT_LT(largest_difference(std::get<6>(a), std::get<6>(b)), 1e-9) << "dmask";
  }
}

TEST(Attention, PaddingMayHoldAnything) {
  const Tensor q = leaf({1, 1, 3, 4}, 1), k = leaf({1, 1, 5, 4}, 2).detach(), v = leaf({1, 1, 5, 4}, 3).detach();
  AttentionOptions options;
  options.length_rule = LengthRule::visible;
  const Tensor expected = attention(q, k.slice(2, 0, 2), v.slice(2, 0, 2), options);
  k.slice(2, 2).fill_(std::nan(""));
  v.slice(2, 2).fill_(std::nan(""));
  options.key_lengths = integers({2});
  EXPECT_LT(largest_difference(attention(q, k, v, options), expected), 1e-15);
  EXPECT_LT(largest_difference(std::get<0>(attention_forward_composite(q.detach(), k, v, options, false)), expected), 1e-15);
}

// Neither path reads what is hidden: a poisoned key shows in the rows that see it, a poisoned row in the keys that it sees, and nowhere
// else. Key and value are poisoned together, so that the weight before the value is not exactly zero.
TEST(Attention, PoisonShowsOnlyWhereItIsSeen) {
  const auto fill_not_finite = [](const Tensor& x) { return x.masked_fill(at::isfinite(x).logical_not(), 0); };
  const auto alike = [&](const Tensor& a, const Tensor& b) {
    return at::equal(at::isfinite(a), at::isfinite(b)) && at::allclose(fill_not_finite(a), fill_not_finite(b), 1e-9, 1e-9);
  };
  for (const Case& c : all_cases()) {
    if (c.options.dropout > 0 || c.options.length_rule != LengthRule::keys) continue;
    for (const double poison : {std::nan(""), std::numeric_limits<double>::infinity()})
      for (const bool in_key : {true, false}) {
        SCOPED_TRACE(c.name + (in_key ? ", key " : ", row ") + std::to_string(poison));
        const Tensor q = leaf({c.B, c.Hq, c.Lq, c.D}, 1).detach(), k = leaf({c.B, c.Hkv, c.Lk, c.D}, 2).detach(),
                     v = leaf({c.B, c.Hkv, c.Lk, c.D}, 3).detach();
        AttentionBackwardInputs inputs;
        inputs.grad_out = leaf({c.B, c.Hq, c.Lq, c.D}, 4).detach();
        for (const Tensor& tensor : {in_key ? k : q, in_key ? v : inputs.grad_out})
          tensor.select(2, in_key ? c.Lk * 3 / 4 : c.Lq / 3).fill_(poison);
        const AttentionOutputs fused = attention_forward_cpu(q, k, v, c.options, true);
        const AttentionOutputs composite = attention_forward_composite(q, k, v, c.options, true);
        EXPECT_TRUE(alike(std::get<0>(fused), std::get<0>(composite))) << "out";
        EXPECT_TRUE(alike(std::get<1>(fused), std::get<1>(composite))) << "weight_sum";

        if (c.options.h == Activation::softmax) {
          inputs.out = std::get<0>(fused);
          inputs.lse = std::get<5>(fused);
        }
        const AttentionGradients a = attention_backward_cpu(q, k, v, inputs, c.options);
        const AttentionGradients b = attention_backward_composite(q, k, v, inputs, c.options);
        EXPECT_TRUE(alike(std::get<0>(a), std::get<0>(b))) << "dq";
        EXPECT_TRUE(alike(std::get<1>(a), std::get<1>(b))) << "dk";
        EXPECT_TRUE(alike(std::get<2>(a), std::get<2>(b))) << "dv";
      }
  }
}

// d loss / d x[i] by central differences, for a few i of every input, against autograd.
void check_gradients(const std::vector<Tensor>& inputs, const std::function<Tensor()>& loss) {
  const std::vector<Tensor> grads = gradients(loss(), inputs);
  const double step = 1e-6;
  for (size_t n = 0; n < inputs.size(); ++n) {
    ASSERT_TRUE(grads[n].defined()) << "input " << n;
    ASSERT_EQ(grads[n].sizes(), inputs[n].sizes()) << "input " << n;
    double* x = inputs[n].data_ptr<double>();
    for (int64_t i = 0; i < inputs[n].numel(); i += 1 + inputs[n].numel() / 7) {
      const double saved = x[i];
      x[i] = saved + step;
      const double above = loss().item<double>();
      x[i] = saved - step;
      const double below = loss().item<double>();
      x[i] = saved;
      const double slope = (above - below) / (2 * step);
      EXPECT_NEAR(grads[n].contiguous().data_ptr<double>()[i], slope, 1e-6 * std::max(1.0, std::abs(slope)))
          << "input " << n << " element " << i;
    }
  }
}

TEST(Attention, GradientsEqualCentralDifferences) {
  for (const Activation h : {Activation::gelu, Activation::silu, Activation::relu, Activation::softmax}) {
    SCOPED_TRACE(std::string(kernels::activation_name(h)));
    const Tensor q = leaf({2, 4, 5, 6}, 1), k = leaf({2, 2, 7, 6}, 2), v = leaf({2, 2, 7, 6}, 3);
    std::vector<Tensor> inputs = {q, k, v};
    AttentionOptions options;
    options.h = h;
    options.causal = true;
    options.dropout = 0.2;
    options.seed = integers({5});
    if (h != Activation::softmax) {
      options.length_rule = LengthRule::visible;
      options.gain = leaf({4}, 4);
      options.bias = leaf({1}, 5);
      options.alpha = leaf({}, 6);
      inputs.insert(inputs.end(), {options.gain.values, options.bias.values, options.alpha.values});
    }
    const Tensor direction = leaf({2, 4, 5, 6}, 7).detach(), direction_sum = leaf({2, 4, 5}, 8).detach(),
                 direction_log = leaf({2, 4, 5}, 9).detach();
    check_gradients(inputs, [&] {
      const AttentionResult r = attention_with_statistics(q, k, v, options);
      return (r.out * direction).sum() + (r.weight_sum * direction_sum).sum() + (r.weight_log * direction_log).sum();
    });
    check_gradients({q, k}, [&] { return (attention_with_statistics(q, k, v, options).weight_log * direction_log).sum(); });
  }
}

TEST(Attention, GradientsOfParametersHaveTheirShapeAndType) {
  const Tensor q = leaf({1, 4, 3, 8}, 1, at::kFloat), k = leaf({1, 4, 3, 8}, 2, at::kFloat), v = leaf({1, 4, 3, 8}, 3, at::kFloat);
  AttentionOptions options;
  options.gain = leaf({4, 1, 1}, 4, at::kFloat);
  options.alpha = leaf({}, 5, at::kDouble);
  options.bias = leaf({4}, 6, at::kFloat).detach();
  const std::vector<Tensor> grads = gradients(attention(q, k, v, options).sum(), {options.gain.values, options.alpha.values});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({4, 1, 1}));
  EXPECT_EQ(grads[0].scalar_type(), at::kFloat);
  EXPECT_EQ(grads[1].dim(), 0);
  EXPECT_EQ(grads[1].scalar_type(), at::kDouble);
}

TEST(Attention, SecondDifferentiationIsOneClearError) {
  const Tensor q = leaf({1, 1, 3, 4}, 1), k = leaf({1, 1, 3, 4}, 2), v = leaf({1, 1, 3, 4}, 3);
  const Tensor loss = attention(q, k, v).square().sum();
  const Tensor dq = torch::autograd::grad({loss}, {q}, {}, c10::nullopt, /*create_graph=*/true)[0];
  EXPECT_TRUE(dq.requires_grad());
  EXPECT_EQ(error_of([&] { torch::autograd::grad({dq.sum()}, {q}); }).rfind("hinge::attention: its gradients cannot be differentiated", 0),
            0u);
}

TEST(Attention, StatisticsAreThoseOfTheWeights) {
  const Tensor q = leaf({1, 2, 5, 8}, 1), k = leaf({1, 2, 9, 8}, 2), v = leaf({1, 2, 9, 8}, 3);
  const AttentionResult r = attention_with_statistics(q, k, v);
  const Tensor w = at::relu(at::matmul(q, k.transpose(2, 3)) / std::sqrt(8.0)) / 9;
  EXPECT_LT(largest_difference(r.weight_sum, w.sum(-1)), 1e-14);
  EXPECT_LT(largest_difference(r.weight_log, at::xlogy(w, w).sum(-1)), 1e-14);
  EXPECT_EQ(largest_difference(r.zero_share, (w == 0).to(at::kDouble).mean(-1)), 0);
  EXPECT_EQ(r.skipped_share.sizes(), at::IntArrayRef({1, 2}));
  EXPECT_TRUE((r.skipped_share >= 0).all().item<bool>() && (r.skipped_share <= 1).all().item<bool>());
}

TEST(Attention, PackedProjectionIsReadInPlaceAndResultsFollowItsOrder) {
  const int64_t B = 2, L = 11, H = 3, D = 16;
  const Tensor packed = leaf({B, L, 3, H, D}, 1, at::kFloat).detach();
  std::vector<Tensor> qkv, copies;
  for (int64_t i = 0; i < 3; ++i) {
    qkv.push_back(packed.select(2, i).transpose(1, 2).requires_grad_(true));  // [B, H, L, D]
    copies.push_back(qkv.back().detach().contiguous().requires_grad_(true));
    EXPECT_TRUE(with_adjacent_width(qkv.back()).is_same(qkv.back()));
  }
  const Tensor out = attention(qkv[0], qkv[1], qkv[2]), expected = attention(copies[0], copies[1], copies[2]);
  EXPECT_TRUE(at::equal(out, expected));
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  EXPECT_TRUE(expected.is_contiguous());

  // Gradients: the same numbers in the order of their inputs, whatever the order of grad_out, which may also be broadcast.
  const Tensor direction = leaf({B, L, H, D}, 2, at::kFloat).detach().transpose(1, 2);
  for (const Tensor& grad_out : {direction, direction.contiguous(), at::ones({1}).expand({B, H, L, D})}) {
    const auto backward = [&](const Tensor& of, const std::vector<Tensor>& inputs) {
      return torch::autograd::grad({of}, inputs, {grad_out}, /*retain_graph=*/true);
    };
    const std::vector<Tensor> grads = backward(out, qkv), expected_grads = backward(expected, copies);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(grads[i], expected_grads[i])) << i;
      EXPECT_TRUE(grads[i].transpose(1, 2).is_contiguous()) << i;
      EXPECT_TRUE(expected_grads[i].is_contiguous()) << i;
    }
  }
}

TEST(Attention, ElementsThatAreNotAdjacentAreCopied) {
  const Tensor q = leaf({1, 2, 8, 5}, 1).detach().transpose(2, 3), k = leaf({1, 2, 8, 6}, 2).detach().transpose(2, 3),
               v = leaf({1, 2, 6, 16}, 3).detach().slice(3, 0, 16, 2);
  EXPECT_TRUE(at::equal(attention(q, k, v), attention(q.contiguous(), k.contiguous(), v.contiguous())));
}

TEST(Attention, EmptyProblems) {
  for (const Activation h : {Activation::relu, Activation::identity, Activation::softmax})
    for (const auto& [B, Lq, Lk] : {std::array<int64_t, 3>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {2, 0, 0}}) {
      SCOPED_TRACE(std::string(kernels::activation_name(h)) + " B " + std::to_string(B) + " Lq " + std::to_string(Lq) + " Lk " +
                   std::to_string(Lk));
      AttentionOptions options;
      options.h = h;
      if (h != Activation::softmax) options.gain = leaf({2}, 4);
      const Tensor q = leaf({B, 2, Lq, 8}, 1), k = leaf({B, 2, Lk, 8}, 2), v = leaf({B, 2, Lk, 8}, 3);
      const AttentionResult r = attention_with_statistics(q, k, v, options);
      EXPECT_EQ(r.out.sizes(), q.sizes());
      EXPECT_EQ(largest_difference(r.out, at::zeros_like(q)), 0);
      EXPECT_EQ(largest_difference(r.weight_sum, at::zeros({B, 2, Lq})), 0);
      EXPECT_EQ(largest_difference(r.weight_log, at::zeros({B, 2, Lq})), 0);
      std::vector<Tensor> inputs = {q, k, v};
      if (options.gain.values.defined()) inputs.push_back(options.gain.values);
      const std::vector<Tensor> grads = gradients(r.out.sum() + r.weight_sum.sum(), inputs);
      for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(largest_difference(grads[i], at::zeros_like(inputs[i])), 0) << i;
    }
}

TEST(Attention, ThreadsDoNotChangeABit) {
  const Tensor q = leaf({1, 4, 150, 32}, 1, at::kFloat), k = leaf({1, 2, 170, 32}, 2, at::kFloat), v = leaf({1, 2, 170, 32}, 3, at::kFloat);
  for (const Activation h : kAll) {
    AttentionOptions options;
    options.h = h;
    const auto run = [&](int count) {
      const Threads set(count);
      const Tensor out = attention(q, k, v, options);
      std::vector<Tensor> all = gradients(out.square().sum(), {q, k, v});
      all.push_back(out);
      return all;
    };
    const std::vector<Tensor> one = run(1), three = run(3);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << kernels::activation_name(h) << " " << i;
  }
}

TEST(Attention, DropoutDependsOnTheSeedOnly) {
  const Tensor q = leaf({1, 2, 40, 8}, 1), k = leaf({1, 2, 40, 8}, 2), v = leaf({1, 2, 40, 8}, 3);
  AttentionOptions options;
  options.dropout = 0.5;
  options.seed = integers({1});
  const Tensor first = attention(q, k, v, options);
  EXPECT_TRUE(at::equal(first, attention(q, k, v, options)));
  options.seed = integers({2});
  EXPECT_FALSE(at::equal(first, attention(q, k, v, options)));
  options.seed = Tensor();
  at::manual_seed(7);
  const Tensor drawn = attention(q, k, v, options);
  EXPECT_FALSE(at::equal(drawn, attention(q, k, v, options)));
  at::manual_seed(7);
  EXPECT_TRUE(at::equal(drawn, attention(q, k, v, options)));
}

TEST(Presets, AreThePublishedFormulas) {
  const Tensor q = leaf({1, 2, 6, 16}, 1), k = leaf({1, 2, 6, 16}, 2), v = leaf({1, 2, 6, 16}, 3);
  const Tensor x = at::matmul(q, k.transpose(2, 3)) / 4, hidden = at::ones({6, 6}, at::kBool).triu(1),
               n = at::arange(1, 7, at::kDouble).unsqueeze(1);
  const auto causal = [&](const char* name, double gamma = 1.0) {
    AttentionOptions options = preset(name, gamma);
    options.causal = true;
    return attention(q, k, v, options);
  };
  const auto with = [&](const Tensor& weights) { return at::matmul(weights.masked_fill(hidden, 0), v); };
  EXPECT_EQ(preset_names(), (std::vector<std::string>{"relu-vit", "reluformer", "relu2", "sigmoid", "silu", "linear", "softmax"}));
  EXPECT_LT(largest_difference(causal("relu-vit"), with(at::relu(x) / 6)), 1e-14);
  EXPECT_LT(largest_difference(causal("reluformer", 3.0), with(at::relu(x) / n.sqrt() * std::sqrt(2.0) / 3.0)), 1e-14);
  EXPECT_LT(largest_difference(causal("relu2"), with(at::relu(x).square() / 6)), 1e-14);
  EXPECT_LT(largest_difference(causal("sigmoid"), with(at::sigmoid(x - n.log()))), 1e-14);
  EXPECT_LT(largest_difference(causal("silu"), with(at::silu(x) / n)), 1e-14);
  EXPECT_LT(largest_difference(causal("linear"), with(x / 6)), 1e-14);
  EXPECT_LT(largest_difference(causal("softmax"), with(at::softmax(x.masked_fill(hidden, -1e30), -1))), 1e-14);
  EXPECT_EQ(
      error_of([] { preset("reluform"); }),
      "hinge::attention: unknown preset \"reluform\"; there are relu-vit, reluformer, relu2, sigmoid, silu, linear, softmax; did you mean "
      "\"reluformer\"?");
  EXPECT_EQ(error_of([] { preset("reluformer", 0.0); }), "hinge::attention: gamma must be positive and finite, got 0");
  EXPECT_EQ(error_of([] { preset("silu", 2.0); }), "hinge::attention: gamma belongs to the preset \"reluformer\", got 2 for \"silu\"");
}

TEST(Errors, SayWhatWasGivenAndWhatIsAllowed) {
  const auto tensor = [](at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) { return at::zeros(sizes, dtype); };
  const Tensor q = tensor({2, 4, 3, 8}), k = tensor({2, 2, 5, 8}), one = tensor({1, 4, 3, 8}), one_k = tensor({1, 2, 5, 8});
  using Options = AttentionOptions;
  const auto with = [](const std::function<void(Options&)>& change) {
    Options options;
    change(options);
    return options;
  };
  struct Wrong {
    Tensor q, k, v;
    Options options;
    const char* message;  // after "hinge::attention: "
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const Wrong wrongs[] = {
      {tensor({4, 3, 8}), k, k, {}, "query must have four dimensions [batch, heads, length, width], got the shape [4, 3, 8]"},
      {q, k, tensor({2, 5, 8}), {}, "value must have four dimensions [batch, heads, length, width], got the shape [2, 5, 8]"},
      {q.to(at::kInt), k, k, {}, "query has dtype Int; float32, float64, bfloat16 and float16 are supported, cast it to one of them"},
      {q, k.to(at::kLong), k, {}, "key has dtype Long; float32, float64, bfloat16 and float16 are supported, cast it to one of them"},
      {q, k, k.to(at::kDouble), {}, "query, key and value must have one dtype, got Float for query and Double for value"},
      {q, k, tensor({2, 2, 6, 8}), {}, "key and value must have one shape but for the width, got [2, 2, 5, 8] and [2, 2, 6, 8]"},
      {q, one_k, one_k, {}, "query and key must have one batch size, got 2 and 1"},
      {q, tensor({2, 2, 5, 7}), tensor({2, 2, 5, 7}), {}, "query and key must have one head width, got 8 and 7"},
      {tensor({2, 4, 3, 0}),
       tensor({2, 2, 5, 0}),
       tensor({2, 2, 5, 0}),
       {},
       "the head width must be at least 1, got the query shape [2, 4, 3, 0] and the value shape [2, 2, 5, 0]"},
      {q,
       tensor({2, 3, 5, 8}),
       tensor({2, 3, 5, 8}),
       {},
       "the number of query heads must be a multiple of the number of key and value heads, got 4 and 3"},
      {q,
       tensor({2, 0, 5, 8}),
       tensor({2, 0, 5, 8}),
       {},
       "the number of query heads must be a multiple of the number of key and value heads, got 4 and 0"},
      {q, k, k, with([](Options& o) {
         o.key_lengths = integers({1, 6});
       }),
       "key_lengths must be between 0 and the number of keys, 5, got 6 for batch row 1"},
      {q, k, k, with([](Options& o) {
         o.key_lengths = integers({-1, 5});
       }),
       "key_lengths must be between 0 and the number of keys, 5, got -1 for batch row 0"},
      {q, k, k, with([](Options& o) {
         o.key_lengths = integers({1, 2, 3});
       }),
       "key_lengths must have one element for each of the 2 batch rows, got 3"},
      {q, k, k, with([&](Options& o) { o.key_lengths = tensor({2}); }), "key_lengths has dtype Float; int64 and int32 are supported"},
      {q, k, k, with([](Options& o) {
         o.key_lengths = integers({1, 2}).unsqueeze(1);
       }),
       "key_lengths must have one dimension, got the shape [2, 1]"},
      {one, one_k, one_k, with([](Options& o) {
         o.key_lengths = integers({1}), o.q_offsets = o.k_offsets = integers({0, 3});
       }),
       "key_lengths and offsets exclude each other; give the lengths of jagged sequences by the offsets alone"},
      {one, one_k, one_k, with([](Options& o) {
         o.q_offsets = integers({0, 3});
       }),
       "q_offsets and k_offsets go together, got only q_offsets"},
      {q, k, k, with([](Options& o) {
         o.q_offsets = integers({0, 3}), o.k_offsets = integers({0, 5});
       }),
       "with offsets the batch must be 1 (the sequences follow one another in L), got 2"},
      {one, one_k, one_k, with([](Options& o) {
         o.q_offsets = integers({0, 3}), o.k_offsets = integers({0, 2, 5});
       }),
       "q_offsets and k_offsets must be equally long, got 2 and 3"},
      {one, one_k, one_k, with([](Options& o) {
         o.q_offsets = integers({1, 3}), o.k_offsets = integers({0, 5});
       }),
       "q_offsets must start with 0, got 1"},
      {one, one_k, one_k, with([](Options& o) { o.q_offsets = integers({}), o.k_offsets = integers({}); }),
       "q_offsets must start with 0, got no elements"},
      {one, one_k, one_k, with([](Options& o) {
         o.q_offsets = integers({0, 1, 3}), o.k_offsets = integers({0, 6, 5});
       }),
       "k_offsets must not decrease, but 6 is followed by 5"},
      {one, one_k, one_k, with([](Options& o) {
         o.q_offsets = integers({0, 3}), o.k_offsets = integers({0, 4});
       }),
       "k_offsets must end with the length of key, 5, got 4"},
      {q, k, k, with([](Options& o) { o.alpha = std::nan(""); }), "alpha must be finite, got nan for head 0"},
      {q, k, k, with([&](Options& o) {
         o.alpha = at::tensor({1.0, 1.0, infinity, 1.0});
       }),
       "alpha must be finite, got inf for head 2"},
      {q, k, k, with([&](Options& o) { o.gain = -infinity; }), "gain must be finite, got -inf for head 0"},
      {q, k, k, with([](Options& o) { o.bias = std::nan(""); }), "bias must be finite, got nan for head 0"},
      {q, k.to(at::kMeta), k.to(at::kMeta), {}, "query, key and value must be on one device, got cpu for query and meta for key"},
      {q, k, k, with([](Options& o) { o.h = Activation::identity, o.identity_order = IdentityOrder::linear, o.dropout = 0.1; }),
       "identity_order = \"linear\" makes no single weights that dropout could drop; leave one of the two out"},
      {q, k, k, with([&](Options& o) { o.scale = infinity; }), "scale must be finite, got inf"},
      {q, k, k, with([](Options& o) { o.length_rule = LengthRule::fixed, o.length_n = 0; }), "length_n must be positive and finite, got 0"},
      {q, k, k, with([](Options& o) { o.length_n = 5; }),
       "length_n is for length_rule = \"fixed\" only, got 5 with length_rule = \"keys\""},
      {q, k, k, with([](Options& o) { o.h = Activation::softmax, o.length_n = 5; }),
       "length_n is for length_rule = \"fixed\" only, got 5 with length_rule = \"keys\""},
      {q, k, k, with([](Options& o) { o.length_rule = LengthRule::visible, o.length_n = 2.5; }),
       "length_n is for length_rule = \"fixed\" only, got 2.5 with length_rule = \"visible\""},
      {q, k, k, with([&](Options& o) { o.gain = tensor({3}); }),
       "gain must have 1 element or one for each of the 4 query heads, got the shape [3]"},
      {q, k, k, with([](Options& o) { o.bias = integers({1}); }),
       "bias has dtype Long; float32, float64, bfloat16 and float16 are supported"},
      {q, k, k, with([](Options& o) { o.h = Activation::softmax, o.gain = 2.0; }),
       "softmax takes no gain; leave it out or choose a point-wise h"},
      {q, k, k, with([](Options& o) { o.h = Activation::softmax, o.bias = 2.0; }),
       "softmax takes no bias; leave it out or choose a point-wise h"},
      {q, k, k, with([](Options& o) { o.h = Activation::softmax, o.alpha = 2.0; }),
       "softmax takes no alpha; leave it out or choose a point-wise h"},
      {q, k, k, with([](Options& o) { o.h = Activation::softmax, o.bias_log_n = true; }),
       "softmax takes no bias_log_n; leave it out or choose a point-wise h"},
      {q, k, k, with([](Options& o) { o.h = Activation::softmax, o.length_rule = LengthRule::visible; }),
       "softmax takes no length rule; leave length_rule at its default or choose a point-wise h"},
      {q, k, k, with([](Options& o) { o.h = Activation::relu, o.identity_order = IdentityOrder::linear; }),
       "identity_order is for h = \"identity\" only, got h = \"relu\""},
      {q, k, k, with([](Options& o) { o.dropout = 1.0; }), "dropout must be in [0, 1), got 1"},
      {q, k, k, with([](Options& o) { o.dropout = -0.1; }), "dropout must be in [0, 1), got -0.1"},
      {q, k, k, with([&](Options& o) { o.dropout = 0.1, o.seed = tensor({1}); }),
       "seed must be an int64 tensor with one element, got Float with the shape [1]"},
  };
  for (const Wrong& wrong : wrongs)
    EXPECT_EQ(error_of([&] { attention(wrong.q, wrong.k, wrong.v, wrong.options); }), std::string("hinge::attention: ") + wrong.message);

  AttentionOptions dropout_without_seed;
  dropout_without_seed.dropout = 0.1;
  EXPECT_EQ(error_of([&] { attention_forward_cpu(q, k, k, dropout_without_seed, false); }),
            "hinge::attention: dropout needs a seed, an int64 tensor with one element");
}

}  // namespace
}  // namespace hinge
