// The reference itself: a hand-made example, and its gradients against central differences for every h and every option.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "problem.h"

namespace hinge::kernels::testing {
namespace {

using Real = long double;

// The loss whose gradient attention_backward gives: every output times its given gradient.
Real loss(const Problem<Real>& p) {
  const AttentionShape& s = p.shape;
  const auto out = Array<Real>::make_one(Layout::contiguous, true, s.B, s.Hq, s.Lq, s.D);
  std::vector<Real> weight_sum(p.row_count()), weight_log(p.row_count());
  AttentionForward<Real> f;
  f.q = p.q.cview(), f.k = p.k.cview(), f.v = p.v.cview(), f.out = out.view;
  f.weight_sum = weight_sum.data(), f.weight_log = weight_log.data();
  reference::attention_forward(s, p.rule, f);
  Real sum = 0;
  const std::vector<Real> values = out.flat(), grads = p.grad_out.flat();
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * grads[i];
  if (p.statistics)
    for (size_t i = 0; i < p.row_count(); ++i) sum += weight_sum[i] * p.grad_weight_sum[i] + weight_log[i] * p.grad_weight_log[i];
  return sum;
}

// No visible score is near a kink of h (0, and 6 for relu6), nor w near 0 where w log|w| has one.
bool off_the_kinks(const Problem<Real>& p) {
  bool off = true;
  reference::for_each_row(p.shape, [&](const Sequence& seq, int64_t head, int64_t i) {
    const auto row = reference::row_of_weights<Real>(p.shape, p.rule, p.q.cview(), p.k.cview(), seq, head, i);
    for (Real x : row.x) off = off && std::abs(x) > 0.01 && std::abs(x - 6) > 0.01;
  });
  return off || p.softmax();
}

template <typename Number>
void check_gradients(const char* what, Problem<Real>& p, const std::function<Number&(size_t)>& input, const auto& gradients) {
  const Number step = Number(1e-6);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Number x = input(i);
    input(i) = x + step;
    const Real above = loss(p);
    input(i) = x - step;
    const Real below = loss(p);
    input(i) = x;
    const Real wanted = (above - below) / (2 * Real(step));
    // Truncation is about step^2 / 6 of the third derivative, which w log|w| lets grow to 1/w^2, about 1e4.
    EXPECT_NEAR(static_cast<double>(gradients[i]), static_cast<double>(wanted), 2e-7 * (1 + std::abs(static_cast<double>(wanted))))
        << what << " " << i;
  }
}

void check_gradients(Case c) {
  SCOPED_TRACE(c.name());
  Problem<Real> p = make_problem<Real>(c);
  for (int attempt = 0; !off_the_kinks(p); ++attempt) {
    ASSERT_LT(attempt, 500);
    c.seed += 1;
    p = make_problem<Real>(c);
  }
  p.point_into_own_vectors();
  const Results<Real> r = run_reference(p);
  const auto elements = [](const Array<Real>& array) {
    auto pointers = std::make_shared<std::vector<Real*>>();
    array.for_each([&](Real& element) { pointers->push_back(&element); });
    return [pointers](size_t i) -> Real& { return *(*pointers)[i]; };
  };
  check_gradients<Real>("q", p, elements(p.q), r.dq);
  check_gradients<Real>("k", p, elements(p.k), r.dk);
  check_gradients<Real>("v", p, elements(p.v), r.dv);
  if (!p.gain.empty()) {
    check_gradients<double>(
        "gain", p, [&](size_t i) -> double& { return p.gain[i]; }, r.dgain);
    check_gradients<double>(
        "bias", p, [&](size_t i) -> double& { return p.bias[i]; }, r.dbias);
    check_gradients<double>(
        "alpha", p, [&](size_t i) -> double& { return p.alpha[i]; }, r.dalpha);
  }
}

Case small_case(Activation h) {
  Case c;
  c.h = h, c.B = 2, c.Hkv = 1, c.group = 2, c.Lq = 3, c.Lk = 4, c.D = 3, c.head_parameters = true, c.statistics = true;
  c.scale = h == Activation::relu6 ? 2.5 : 0.9;
  return c;
}

class ReferenceGradient : public ::testing::TestWithParam<int> {
 protected:
  Activation h() const { return static_cast<Activation>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(EveryActivation, ReferenceGradient, ::testing::Range(0, static_cast<int>(kActivationNames.size())),
                         [](const auto& info) { return std::string(kActivationNames[static_cast<size_t>(info.param)]); });

TEST_P(ReferenceGradient, EveryLengthRule) {
  for (LengthRule rule : {LengthRule::none, LengthRule::fixed, LengthRule::keys, LengthRule::visible}) {
    Case c = small_case(h());
    c.length_rule = rule;
    check_gradients(c);
    c.bias_log_n = true, c.visibility = Visibility::causal;
    check_gradients(c);
  }
}

TEST_P(ReferenceGradient, EveryVisibility) {
  for (size_t v = 0; v < kVisibilityNames.size(); ++v)
    for (int64_t Lq : {3, 5}) {
      Case c = small_case(h());
      c.visibility = static_cast<Visibility>(v), c.length_rule = LengthRule::visible, c.Lq = Lq;
      check_gradients(c);
    }
}

TEST_P(ReferenceGradient, Dropout) {
  Case c = small_case(h());
  c.dropout = 0.4;
  check_gradients(c);
  c.statistics = false, c.visibility = Visibility::causal;
  check_gradients(c);
}

// A head whose gain is 0 has no weights, and still knows how the loss changes with its gain. (Not with the statistics: w log|w| has no
// derivative at 0.)
TEST_P(ReferenceGradient, OfZeroGain) {
  if (h() == Activation::softmax) GTEST_SKIP() << "softmax has no gain";
  Case c = small_case(h());
  c.statistics = false;
  Problem<Real> p = make_problem<Real>(c);
  p.gain[1] = 0;
  p.point_into_own_vectors();
  const Results<Real> r = run_reference(p);
  check_gradients<double>(
      "gain", p, [&](size_t i) -> double& { return p.gain[i]; }, r.dgain);
  EXPECT_NE(r.dgain[1], 0);
  EXPECT_EQ(r.dbias[1], 0);
  EXPECT_EQ(r.dalpha[1], 0);
}

// One head, two queries, two keys, worked out by hand:
//   q = (1, 2), (-1, 0)   k = (1, 1), (2, -3)   v = (1, 10), (100, 1000)   scale 0.5, bias 0.5, gain 3, alpha 0.5, N = 4
//   x = (2, -1.5; 0, -0.5),  h = relu,  c = 3 / 2,  w = (3, 0; 0, 0)
TEST(Reference, WorkedExample) {
  const double q[] = {1, 2, -1, 0}, k[] = {1, 1, 2, -3}, v[] = {1, 10, 100, 1000}, gain = 3, bias = 0.5, alpha = 0.5;
  double out[4], weight_sum[2], weight_log[2], zero_share[2];
  AttentionShape shape;
  shape.B = shape.Hq = shape.Hkv = 1, shape.Lq = shape.Lk = shape.D = 2;
  AttentionRule rule;
  rule.scale = 0.5, rule.gain = &gain, rule.bias = &bias, rule.alpha = &alpha, rule.length_rule = LengthRule::fixed, rule.length_n = 4;
  AttentionForward<double> f{{q, 4, 4, 2}, {k, 4, 4, 2}, {v, 4, 4, 2}, {out, 4, 4, 2}};
  f.weight_sum = weight_sum, f.weight_log = weight_log, f.zero_share = zero_share;
  reference::attention_forward(shape, rule, f);
  EXPECT_EQ(std::vector<double>(out, out + 4), (std::vector<double>{3, 30, 0, 0}));
  EXPECT_EQ(weight_sum[0], 3);
  EXPECT_DOUBLE_EQ(weight_log[0], 3 * std::log(3));
  EXPECT_EQ(zero_share[0], 0.5);
  EXPECT_EQ(weight_sum[1], 0);
  EXPECT_EQ(weight_log[1], 0);
  EXPECT_EQ(zero_share[1], 1);

  // Squared, and log N inside h:  x_11 = 2 - log 4.
  rule.h = Activation::relu2, rule.bias_log_n = true;
  reference::attention_forward(shape, rule, f);
  EXPECT_DOUBLE_EQ(weight_sum[0], 1.5 * (2 - std::log(4)) * (2 - std::log(4)));

  // Softmax of (1.5, -2) and (-0.5, -1); gain, bias and the rest are not used.
  rule.h = Activation::softmax;
  double lse[2];
  f.lse = lse;
  reference::attention_forward(shape, rule, f);
  EXPECT_DOUBLE_EQ(lse[0], std::log(std::exp(1.5) + std::exp(-2)));
  EXPECT_DOUBLE_EQ(out[2], (1 * std::exp(-0.5) + 100 * std::exp(-1)) / (std::exp(-0.5) + std::exp(-1)));
  EXPECT_DOUBLE_EQ(weight_sum[1], 1);
}

TEST(Reference, WhoSeesWhat) {
  AttentionShape shape;
  shape.B = 2, shape.Lq = 3, shape.Lk = 5, shape.causal = true;
  const int64_t key_lengths[] = {4, 0};
  shape.key_lengths = key_lengths;
  const auto counts = [&](int64_t s) {
    std::vector<int64_t> n;
    const Sequence seq = sequence(shape, s);
    for (int64_t i = 0; i < seq.lq; ++i) n.push_back(seq.visible(i));
    return n;
  };
  ASSERT_EQ(sequence_count(shape), 2);
  EXPECT_EQ(counts(0), (std::vector<int64_t>{3, 4, 4}));
  EXPECT_EQ(counts(1), (std::vector<int64_t>{0, 0, 0}));

  AttentionRule rule;
  rule.length_rule = LengthRule::keys;
  EXPECT_EQ(sequence(shape, 0).row_length(rule, 3), 5);
  rule.length_rule = LengthRule::visible;
  EXPECT_EQ(sequence(shape, 0).row_length(rule, 3), 3);
  rule.length_rule = LengthRule::fixed, rule.length_n = 2.5;
  EXPECT_EQ(sequence(shape, 0).row_length(rule, 3), 2.5);

  const int64_t q_offsets[] = {0, 0, 2, 6}, k_offsets[] = {0, 1, 4, 6};
  shape = AttentionShape{};
  shape.B = 1, shape.Lq = shape.Lk = 6, shape.causal = true;
  shape.q_offsets = q_offsets, shape.k_offsets = k_offsets, shape.sequences = 3;
  ASSERT_EQ(sequence_count(shape), 3);
  EXPECT_TRUE(counts(0).empty());
  EXPECT_EQ(counts(1), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(counts(2), (std::vector<int64_t>{0, 0, 1, 2}));
  EXPECT_EQ(sequence(shape, 2).k_begin, 4);
  rule.length_rule = LengthRule::keys;
  EXPECT_EQ(sequence(shape, 1).row_length(rule, 0), 3);
}

}  // namespace
}  // namespace hinge::kernels::testing
