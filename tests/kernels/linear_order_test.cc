// The linear-time order of identity is the same function as the quadratic one, and is taken only where it may be.
#include <gtest/gtest.h>

#include "bounds.h"
#include "problem.h"

namespace hinge::kernels::testing {
namespace {

TEST(LinearOrder, EqualsReference) {
  struct Size {
    int64_t Lq, Lk, D;
  };
  for (size_t v = 0; v < kVisibilityNames.size(); ++v)
    for (LengthRule rule : {LengthRule::keys, LengthRule::visible})
      for (const auto& [Lq, Lk, D] : std::vector<Size>{{130, 130, 20}, {1, 70, 7}, {70, 3, 1}, {37, 150, 64}, {20, 290, 130}}) {
        if (quick() && (v + static_cast<size_t>(Lq)) % 3 != 0) continue;
        Case c;
        c.h = Activation::identity, c.identity_order = IdentityOrder::linear, c.visibility = static_cast<Visibility>(v);
        c.length_rule = rule, c.bias_log_n = rule == LengthRule::visible, c.head_parameters = true;
        c.B = 3, c.Hkv = 1, c.group = 2, c.Lq = Lq, c.Lk = Lk, c.D = D, c.workers = 2;
        c.parameter_gradients = rule == LengthRule::visible;
        SCOPED_TRACE(c.name());
        const Problem<float> p = make_problem<float>(c);
        const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
        Threads threads(2);
        for_each_simd_target([&] { expect_within(run_fast(p, threads), wanted, bounds); });

        const Problem<double> p64 = p.as<double>();
        expect_within(run_fast(p64, threads), run_reference(p64.as<long double>()), error_bounds(p64));
      }
}

// weight_sum and its gradient have a linear-time form too.
TEST(LinearOrder, WeightSum) {
  for (Visibility visibility : {Visibility::all, Visibility::causal}) {
    Case c;
    c.h = Activation::identity, c.identity_order = IdentityOrder::linear, c.visibility = visibility, c.head_parameters = true,
    c.statistics = true;
    c.Lq = 77, c.Lk = 90, c.D = 16;
    Problem<float> p = make_problem<float>(c);
    std::fill(p.grad_weight_log.begin(), p.grad_weight_log.end(), 0.f);
    const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
    for_each_simd_target([&] {
      Serial serial;
      const auto out = Array<float>::make_one(Layout::contiguous, true, c.B, c.Hkv, c.Lq, c.D);
      std::vector<float> weight_sum(p.row_count());
      AttentionForward<float> f{p.q.cview(), p.k.cview(), p.v.cview(), out.view};
      f.weight_sum = weight_sum.data();
      attention_forward(p.shape, p.rule, f, serial);
      expect_within("out", out.flat(), wanted.out, bounds.out);
      expect_within("weight_sum", weight_sum, wanted.weight_sum, bounds.weight_sum);

      const auto grads = Array<float>::make_qkv(Layout::contiguous, true, p.shape);
      AttentionBackward<float> b;
      b.q = f.q, b.k = f.k, b.v = f.v, b.grad_out = p.grad_out.cview(), b.grad_weight_sum = p.grad_weight_sum.data();
      b.dq = grads[0].view, b.dk = grads[1].view, b.dv = grads[2].view;
      attention_backward(p.shape, p.rule, b, serial);
      expect_within("dq", grads[0].flat(), wanted.dq, bounds.dq);
      expect_within("dk", grads[1].flat(), wanted.dk, bounds.dk);
      expect_within("dv", grads[2].flat(), wanted.dv, bounds.dv);
    });
  }
}

TEST(LinearOrder, SameBitsForAnyNumberOfWorkers) {
  Case c;
  c.h = Activation::identity, c.identity_order = IdentityOrder::linear, c.visibility = Visibility::causal, c.head_parameters = true,
  c.B = 1, c.Lq = c.Lk = 600;
  const Problem<float> p = make_problem<float>(c);
  const Results<float> alone = run_fast(p);
  for (int workers : {2, 5}) {
    Threads threads(workers);
    const Results<float> r = run_fast(p, threads);
    EXPECT_EQ(r.out, alone.out);
    EXPECT_EQ(r.dq, alone.dq);
    EXPECT_EQ(r.dk, alone.dk);
    EXPECT_EQ(r.dv, alone.dv);
    EXPECT_EQ(r.dgain, alone.dgain);
    EXPECT_EQ(r.dbias, alone.dbias);
    EXPECT_EQ(r.dalpha, alone.dalpha);
  }
}

TEST(LinearOrder, TakenOnlyWhereItMayBe) {
  AttentionShape shape;
  shape.B = 1, shape.Hq = shape.Hkv = 6, shape.Lq = shape.Lk = 16384, shape.D = 64;
  AttentionRule rule;
  rule.h = Activation::identity;
  EXPECT_TRUE(takes_linear_order(shape, rule, false)) << "long, narrow heads: cheaper by far";
  EXPECT_FALSE(takes_linear_order(shape, rule, true)) << "single weights are wanted";
  rule.dropout = 0.1;
  EXPECT_FALSE(takes_linear_order(shape, rule, false)) << "single weights are dropped";
  rule.dropout = 0, rule.identity_order = IdentityOrder::quadratic;
  EXPECT_FALSE(takes_linear_order(shape, rule, false)) << "asked for the other";
  rule.identity_order = IdentityOrder::automatic, shape.Lq = shape.Lk = 16;
  EXPECT_FALSE(takes_linear_order(shape, rule, false)) << "short, wide heads";
  rule.identity_order = IdentityOrder::linear;
  EXPECT_TRUE(takes_linear_order(shape, rule, false)) << "asked for";
  rule.h = Activation::relu;
  EXPECT_FALSE(takes_linear_order(shape, rule, false)) << "relu has no linear order";
}

}  // namespace
}  // namespace hinge::kernels::testing
