// Attention over split sequences against the op on whole ones: forward, statistics and gradients, in float64 up to the rounding of sums in
// another order, in float32 within a small factor of the op's own error.
#include "nn/sequence_attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <mutex>

#include "../support/errors.h"
#include "ranks.h"

namespace hinge::nn {
namespace {

using at::Tensor;
using kernels::Activation;
using kernels::LengthRule;
using support::error_of;
using support::mentions;

struct Case {
  std::string name;
  AttentionOptions options = {};
  bool statistics = false;
  int64_t B = 2, Hq = 4, Hkv = 4, Lq = 23, Lk = 23, D = 16, Dv = 16;
  std::vector<int64_t> q_lengths = {}, k_lengths = {};  // jagged, B = 1
  bool learned = false;                                 // gain, bias and alpha of each head

  bool jagged() const { return !q_lengths.empty(); }
};

Tensor offsets_of(const std::vector<int64_t>& lengths) {
  return at::cat({at::zeros({1}, at::kLong), at::tensor(lengths, at::kLong).cumsum(0)});
}

// out, weight_sum, weight_log (rows of the queries), dq, dk, dv, dgain, dbias, dalpha.
using Numbers = std::vector<Tensor>;

struct Problem {
  Tensor q, k, v, grad_out, grad_sum, grad_log, gain, bias, alpha;

  Problem(const Case& c, at::ScalarType type) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7});
    const auto normal = [&](at::IntArrayRef sizes) {
      return at::empty(sizes, at::kDouble).normal_(0, 1, generator).to(at::kFloat).to(type);
    };
    q = normal({c.B, c.Hq, c.Lq, c.D}), k = normal({c.B, c.Hkv, c.Lk, c.D}), v = normal({c.B, c.Hkv, c.Lk, c.Dv});
    grad_out = normal({c.B, c.Hq, c.Lq, c.Dv}), grad_sum = normal({c.B, c.Hq, c.Lq}), grad_log = normal({c.B, c.Hq, c.Lq});
    if (c.learned) gain = normal({c.Hq}), bias = normal({c.Hq}), alpha = normal({c.Hq}).abs();
  }

  AttentionOptions with_learned(AttentionOptions options, const std::vector<Tensor>& learned) const {
    if (!learned.empty()) options.gain = learned[0], options.bias = learned[1], options.alpha = learned[2];
    return options;
  }
};

// The gradients of all inputs.
void differentiate(Numbers& numbers, const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& grads) {
  for (const Tensor& grad : torch::autograd::grad(outputs, inputs, grads, c10::nullopt, false, /*allow_unused=*/true))
    numbers.push_back(grad);
}

Numbers whole(const Case& c, at::ScalarType type) {
  const Problem p(c, type);
  const auto leaf = [](const Tensor& tensor) { return tensor.clone().requires_grad_(true); };
  std::vector<Tensor> inputs = {leaf(p.q), leaf(p.k), leaf(p.v)}, learned;
  if (c.learned) learned = {leaf(p.gain), leaf(p.bias), leaf(p.alpha)};
  AttentionOptions options = p.with_learned(c.options, learned);
  if (c.jagged()) options.q_offsets = offsets_of(c.q_lengths), options.k_offsets = offsets_of(c.k_lengths);
  const AttentionResult result = attention_with_statistics(inputs[0], inputs[1], inputs[2], options);
  inputs.insert(inputs.end(), learned.begin(), learned.end());
  Numbers numbers = {result.out.detach()};
  if (c.statistics) {
    numbers.insert(numbers.end(), {result.weight_sum.detach(), result.weight_log.detach()});
    differentiate(numbers, {result.out, result.weight_sum, result.weight_log}, inputs, {p.grad_out, p.grad_sum, p.grad_log});
  } else {
    differentiate(numbers, {result.out}, inputs, {p.grad_out});
  }
  return numbers;
}

Numbers split(const Case& c, at::ScalarType type, int count, Travel travel) {
  const Problem p(c, type);
  const TokenShares queries = c.jagged() ? TokenShares::of_sequences(offsets_of(c.q_lengths), count) : TokenShares::of_batch(c.Lq, count);
  const TokenShares keys = c.jagged() ? TokenShares::of_sequences(offsets_of(c.k_lengths), count) : TokenShares::of_batch(c.Lk, count);
  const auto places = [&](const std::vector<int64_t>& lengths, int64_t tokens, int rank) {
    if (c.jagged()) return rows_of_rank(offsets_of(lengths), rank, count);
    const auto [first, end] = share_of(tokens, rank, count);
    return at::arange(first, end, at::kLong);
  };
  const size_t rows = c.statistics ? 3 : 1;
  std::mutex mutex;
  std::vector<Numbers> of_ranks(static_cast<size_t>(count));
  on_ranks(count, [&](SequenceRanks& ranks) {
    const Tensor q_rows = places(c.q_lengths, c.Lq, ranks.rank()), k_rows = places(c.k_lengths, c.Lk, ranks.rank());
    const auto part = [](const Tensor& tensor, const Tensor& at) { return tensor.index_select(2, at); };
    std::vector<Tensor> inputs = {part(p.q, q_rows), part(p.k, k_rows), part(p.v, k_rows)}, learned;
    for (Tensor& input : inputs) input.requires_grad_(true);
    if (c.learned) learned = {p.gain.clone(), p.bias.clone(), p.alpha.clone()};
    for (Tensor& one : learned) one.requires_grad_(true);
    const SequenceAttentionResult result =
        sequence_attention(inputs[0], inputs[1], inputs[2], p.with_learned(c.options, learned), c.statistics, ranks, queries, keys, travel);
    inputs.insert(inputs.end(), learned.begin(), learned.end());
    Numbers numbers = {result.out.detach()};
    if (c.statistics) {
      numbers.insert(numbers.end(), {result.weight_sum.detach(), result.weight_log.detach()});
      differentiate(numbers, {result.out, result.weight_sum, result.weight_log}, inputs,
                    {part(p.grad_out, q_rows), part(p.grad_sum, q_rows), part(p.grad_log, q_rows)});
    } else {
      differentiate(numbers, {result.out}, inputs, {part(p.grad_out, q_rows)});
    }
    const std::scoped_lock lock(mutex);
    of_ranks[static_cast<size_t>(ranks.rank())] = numbers;
  });
  // Rows of all ranks in the order of the whole; learned numbers as the sum.
  Numbers all;
  for (size_t i = 0; i < of_ranks[0].size(); ++i) {
    Tensor one;
    for (int rank = 0; rank < count; ++rank) {
      const Tensor& part = of_ranks[static_cast<size_t>(rank)][i];
      if (!part.defined()) continue;
      if (i >= rows + 3) {
        one = one.defined() ? one + part : part;
        continue;
      }
      const bool of_keys = i == rows + 1 || i == rows + 2;
      if (!one.defined()) {
        std::vector<int64_t> sizes = part.sizes().vec();
        sizes[2] = of_keys ? c.Lk : c.Lq;
        one = at::full(sizes, std::numeric_limits<double>::quiet_NaN(), part.options());
      }
      one.index_copy_(2, of_keys ? places(c.k_lengths, c.Lk, rank) : places(c.q_lengths, c.Lq, rank), part);
    }
    all.push_back(one);
  }
  return all;
}

double difference(const Tensor& left, const Tensor& right) {
  if (!left.defined() || !right.defined()) return left.defined() ? left.abs().max().item<double>() : 0;
  return (left.to(at::kDouble) - right.to(at::kDouble)).abs().max().item<double>();
}

double largest(const Tensor& tensor) { return tensor.defined() ? std::max(1.0, tensor.abs().max().item<double>()) : 1; }

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto with = [](Activation h, LengthRule rule = LengthRule::keys) {
    AttentionOptions options;
    options.h = h, options.length_rule = rule;
    return options;
  };
  for (const Activation h : {Activation::relu, Activation::gelu, Activation::softmax, Activation::identity}) {
    const std::string name(kernels::activation_name(h));
    all.push_back({name, with(h)});
    all.push_back({name + " of grouped heads, other widths, few queries", with(h), false, 2, 6, 2, 3, 29, 8, 24});
    Case causal{name + " causal", with(h)};
    causal.options.causal = true;
    all.push_back(causal);
    Case padded{name + " padded", with(h), h != Activation::identity};
    padded.B = 4, padded.options.key_lengths = at::tensor({23, 7, 0, 1}, at::kLong);
    all.push_back(padded);
    padded.name += " causal", padded.options.causal = true;
    all.push_back(padded);
    all.push_back({name + " with statistics", with(h), true});
    Case jagged{name + " jagged", with(h), true, 1, 4, 2, 0, 0, 16, 16, {5, 1, 0, 9, 3}, {2, 1, 4, 0, 12}};
    jagged.Lq = 18, jagged.Lk = 19;
    all.push_back(jagged);
    Case jagged_causal{name + " jagged, causal", with(h), true, 1, 4, 4, 18, 18, 16, 16, {5, 1, 0, 9, 3}, {5, 1, 0, 9, 3}};
    jagged_causal.options.causal = true;
    all.push_back(jagged_causal);
    if (h == Activation::softmax) continue;
    for (const LengthRule rule : {LengthRule::none, LengthRule::fixed, LengthRule::keys, LengthRule::visible}) {
      Case learned{name + " learned, length " + std::string(kernels::kLengthRuleNames[static_cast<size_t>(rule)]), with(h, rule),
                   h != Activation::identity};
      learned.learned = true;
      if (rule == LengthRule::fixed) learned.options.length_n = 11;
      all.push_back(learned);
      learned.name += " causal", learned.options.causal = true;
      all.push_back(learned);
    }
  }
  Case jagged{"relu jagged, visible, learned",
              with(Activation::relu, LengthRule::visible),
              true,
              1,
              4,
              4,
              18,
              18,
              16,
              16,
              {5, 1, 0, 9, 3},
              {5, 1, 0, 9, 3}};
  jagged.options.causal = jagged.learned = true;
  all.push_back(jagged);
  Case sigmoid{"sigmoid", preset("sigmoid")};
  all.push_back(sigmoid);
  all.push_back({"more ranks than tokens", with(Activation::relu), true, 2, 2, 2, 2, 3});
  all.push_back({"more ranks than tokens, softmax", with(Activation::softmax), true, 2, 2, 2, 1, 2});
  return all;
}

std::vector<Travel> ways_of(const Case& c) {
  if (c.options.h == Activation::identity && !c.jagged() && !c.statistics) return {Travel::queries, Travel::keys, Travel::sums};
  return {Travel::queries, Travel::keys};
}

TEST(SequenceAttention, IsAttentionInFloat64) {
  for (const Case& c : cases()) {
    const Numbers expected = whole(c, at::kDouble);
    for (const Travel travel : ways_of(c))
      for (const int count : {1, 2, 3, 4}) {
        SCOPED_TRACE(c.name + ", way " + std::to_string(static_cast<int>(travel)) + ", ranks " + std::to_string(count));
        const Numbers got = split(c, at::kDouble, count, travel);
        ASSERT_EQ(got.size(), expected.size());
        // Sums of at most 30 keys or 46 rows of 24 products, in another order: some 100 roundings of the largest summand.
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_LE(difference(got[i], expected[i]), 100 * std::numeric_limits<double>::epsilon() * 10 * largest(expected[i]))
              << "number " << i;
      }
  }
}

TEST(SequenceAttention, InFloat32ItsErrorIsThatOfTheOp) {
  for (const Case& c : cases()) {
    const Numbers exact = whole(c, at::kDouble), op = whole(c, at::kFloat);
    for (const Travel travel : ways_of(c)) {
      SCOPED_TRACE(c.name + ", way " + std::to_string(static_cast<int>(travel)));
      const Numbers got = split(c, at::kFloat, 3, travel);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(difference(got[i], exact[i]),
                  3 * difference(op[i], exact[i]) + 4 * std::numeric_limits<float>::epsilon() * largest(exact[i]))
            << "number " << i;
    }
  }
}

// One rank that has everything computes what the op computes.
TEST(SequenceAttention, OneRankHasTheBitsOfTheOp) {
  Case c{"relu"};
  const Numbers expected = whole(c, at::kFloat), got = split(c, at::kFloat, 1, Travel::queries);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
}

TEST(SequenceAttention, WhatNeedsWholeRowsIsRefused) {
  const auto refused = [](const std::function<void(AttentionOptions&)>& change, int64_t Lk = 6) {
    std::string error;
    on_ranks(1, [&](SequenceRanks& ranks) {
      AttentionOptions options;
      change(options);
      const Tensor q = at::ones({1, 1, 6, 8}), k = at::ones({1, 1, Lk, 8});
      error = error_of([&] {
        sequence_attention(q, k, k, options, false, ranks, TokenShares::of_batch(6, 1), TokenShares::of_batch(Lk, 1), Travel::queries);
      });
    });
    return error;
  };
  EXPECT_TRUE(mentions(refused([](AttentionOptions& options) { options.dropout = 0.1; }), {"dropout", "set dropout to 0", "0.1"}));
  EXPECT_TRUE(mentions(refused([](AttentionOptions& options) { options.window = Window{1, 1}; }), {"window"}));
  EXPECT_TRUE(mentions(refused([](AttentionOptions& options) { options.attn_mask = at::ones({6, 6}); }), {"attn_mask"}));
  EXPECT_TRUE(mentions(refused([](AttentionOptions& options) { options.causal = true; }, 7), {"causal", "as many keys as queries"}));
  EXPECT_TRUE(mentions(refused([](AttentionOptions& options) {
                         options = preset("sigmoid");
                         options.causal = true;
                       }),
                       {"bias_log_n", "sigmoid"}));
}

// ---- what travels

// Counts what a rank sends.
class CountingRanks final : public SequenceRanks {
 public:
  explicit CountingRanks(SequenceRanks& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int count() const override { return ranks_.count(); }
  void all_to_all(const Tensor& in, const std::vector<int64_t>& in_sizes, Tensor& out, const std::vector<int64_t>& out_sizes) override {
    ++rounds;
    for (const int64_t size : in_sizes) elements += size, messages += size > 0;
    ranks_.all_to_all(in, in_sizes, out, out_sizes);
  }

  int64_t rounds = 0, messages = 0, elements = 0;

 private:
  SequenceRanks& ranks_;
};

TEST(SequenceAttention, SendsWhatTheFormulasSay) {
  constexpr int64_t B = 2, D = 8, L = 12;
  for (const Activation h : {Activation::relu, Activation::softmax, Activation::identity})
    for (const bool statistics : {false, true})
      for (const auto& [Hq, Hkv] : {std::pair<int64_t, int64_t>{4, 4}, {4, 1}})
        for (const Travel travel : {Travel::queries, Travel::keys, Travel::sums})
          for (const int P : {2, 3, 4}) {
            if (travel == Travel::sums && (h != Activation::identity || statistics)) continue;
            AttentionOptions options;
            options.h = h;
            on_ranks(P, [&, Hq = Hq, Hkv = Hkv](SequenceRanks& ranks) {
              CountingRanks counted(ranks);
              const TokenShares shares = TokenShares::of_batch(L, P);
              const auto leaf = [&](int64_t heads) { return at::ones({B, heads, L / P, D}).requires_grad_(true); };
              const Tensor q = leaf(Hq), k = leaf(Hkv), v = leaf(Hkv);
              const SequenceAttentionResult result = sequence_attention(q, k, v, options, statistics, counted, shares, shares, travel);
              const TravelCost cost = travel_cost(travel, options, statistics, B, Hq, Hkv, L / P, L / P, D, D);
              const bool round_trip = travel == Travel::queries;
              EXPECT_EQ(counted.elements, (P - 1) * cost.forward);
              EXPECT_EQ(counted.rounds, round_trip ? 2 : 1);
              EXPECT_EQ(counted.messages, counted.rounds * (P - 1));
              Tensor sum = result.out.sum();
              if (statistics) sum = sum + result.weight_sum.sum() + result.weight_log.sum();
              counted.elements = counted.rounds = counted.messages = 0;
              torch::autograd::backward({sum});
              EXPECT_EQ(counted.elements, (P - 1) * cost.backward);
              EXPECT_EQ(counted.rounds, travel == Travel::sums ? 1 : 2);
            });
          }
}

// Rows that all ranks have, as in decoding: two of one sequence and one of another.
TEST(SequenceAttention, ReadByAllIsOneRoundOfPartialResults) {
  constexpr int64_t H = 2, D = 8, R = 3, S = 9;
  at::manual_seed(3);
  const Tensor q_offsets = at::tensor({0, 2, 3}, at::kLong), k_offsets = at::tensor({0, 7, 9}, at::kLong);
  const auto made = [&](int64_t rows) { return at::randn({1, H, rows, D}, at::kDouble); };
  const Tensor q = made(R), k = made(S), v = made(S);
  for (const Activation h : {Activation::relu, Activation::softmax})
    for (const int P : {2, 3, 4}) {
      AttentionOptions options;
      options.h = h;
      if (h == Activation::relu) options.length_rule = LengthRule::visible;
      AttentionOptions whole = options;
      whole.q_offsets = q_offsets, whole.k_offsets = k_offsets;
      const Tensor expected = attention(q, k, v, whole);
      on_ranks(P, [&](SequenceRanks& ranks) {
        CountingRanks counted(ranks);
        const Tensor rows = rows_of_rank(k_offsets, ranks.rank(), P);
        const Tensor out = read_by_all(q, k.index_select(2, rows), v.index_select(2, rows), options, counted, q_offsets,
                                       TokenShares::of_sequences(k_offsets, P));
        EXPECT_LT((out - expected).abs().max().item<double>(), 1e-13);
        EXPECT_EQ(counted.rounds, 1);
        EXPECT_EQ(counted.messages, P - 1);
        EXPECT_EQ(counted.elements, (P - 1) * R * H * (D + (h == Activation::softmax)));
      });
    }
}

// A rank sends its queries only to those who have keys that they see.
TEST(SequenceAttention, CausalSendsHalf) {
  constexpr int P = 4;
  std::mutex mutex;
  int64_t causal = 0, all = 0;
  for (const bool is_causal : {false, true})
    on_ranks(P, [&](SequenceRanks& ranks) {
      CountingRanks counted(ranks);
      AttentionOptions options;
      options.causal = is_causal;
      const TokenShares shares = TokenShares::of_batch(8, P);
      const Tensor x = at::ones({1, 1, 2, 8});
      sequence_attention(x, x, x, options, false, counted, shares, shares, Travel::queries);
      const std::scoped_lock lock(mutex);
      (is_causal ? causal : all) += counted.elements;
    });
  EXPECT_EQ(2 * causal, all);
}

TEST(SequenceAttention, TheCheapestWayIsChosen) {
  AttentionOptions relu, identity;
  identity.h = Activation::identity;
  const TokenShares tokens = TokenShares::of_batch(4096, 4), one = TokenShares::of_batch(4, 4);
  const auto cheapest = [&](const AttentionOptions& options, int64_t Hkv, const TokenShares& queries) {
    return cheapest_travel(options, false, 2, 8, Hkv, 64, 64, queries, tokens);
  };
  EXPECT_EQ(cheapest(relu, 8, tokens), Travel::queries);
  EXPECT_EQ(cheapest(relu, 4, tokens), Travel::keys);
  EXPECT_EQ(cheapest(relu, 4, one), Travel::queries);
  EXPECT_EQ(cheapest(identity, 8, tokens), Travel::sums);
  EXPECT_EQ(cheapest(identity, 8, one), Travel::queries);
}

TEST(SumOverRanks, AddsUpInTheOrderOfTheRanksAndHasTheSumAsItsGradient) {
  for (const int P : {1, 2, 3})
    on_ranks(P, [&](SequenceRanks& ranks) {
      const double rank = ranks.rank();
      const Tensor x = at::full({2}, rank + 1, at::kDouble).requires_grad_(true);
      const auto check = [&](Summands which, double expected, double slope) {
        const Tensor sum = sum_over_ranks(x, ranks, which);
        EXPECT_TRUE((sum == expected).all().item<bool>()) << sum;
        // Rank r weighs the sum with r + 1.
        const Tensor gradient = torch::autograd::grad({(sum * (rank + 1)).sum()}, {x})[0];
        EXPECT_TRUE((gradient == slope).all().item<bool>()) << gradient;
      };
      const double all = P * (P + 1) / 2.0;
      check(Summands::all, all, all);
      check(Summands::others, all - rank - 1, all - rank - 1);
      check(Summands::earlier, rank * (rank + 1) / 2, all - (rank + 1) * (rank + 2) / 2);
    });
}

}  // namespace
}  // namespace hinge::nn
