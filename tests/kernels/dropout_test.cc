// Dropout: the generator against its published answers, the share it keeps, and that the fused kernels drop what dropout_keeps says.
#include "hinge/kernels/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bounds.h"
#include "problem.h"

namespace hinge::kernels::testing {
namespace {

// Known-answer tests of philox4x32-7 that come with Random123 (Salmon et al.).
TEST(Dropout, PhiloxKnownAnswers) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Block{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Block{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Block{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

// The weights that the kernels used, from the outside: h is identity with bias 1 and q = 0, so every weight is 1, and the values are
// rows of the unit matrix, so out_ij is the factor of weight ij.
template <typename T> std::vector<T> factors(const AttentionShape& shape, double dropout, uint64_t seed) {
  const std::vector<T> q(static_cast<size_t>(shape.B * shape.Hq * shape.Lq * shape.D)),
      k(static_cast<size_t>(shape.B * shape.Hkv * shape.Lk * shape.D));
  std::vector<T> v(k.size()), out(q.size());
  for (int64_t row = 0; row < shape.B * shape.Hkv * shape.Lk; ++row) v[static_cast<size_t>(row * shape.D + row % shape.Lk)] = 1;
  const std::vector<double> bias(static_cast<size_t>(shape.Hq), 1);
  AttentionRule rule;
  rule.h = Activation::identity, rule.identity_order = IdentityOrder::quadratic, rule.length_rule = LengthRule::none;
  rule.bias = bias.data(), rule.dropout = dropout, rule.seed = seed;
  const auto strides = [&](auto* data, int64_t H, int64_t L) {
    return View<std::remove_pointer_t<decltype(data)>>{data, H * L * shape.D, L * shape.D, shape.D};
  };
  AttentionForward<T> f{strides(q.data(), shape.Hq, shape.Lq), strides(k.data(), shape.Hkv, shape.Lk),
                        strides(static_cast<const T*>(v.data()), shape.Hkv, shape.Lk), strides(out.data(), shape.Hq, shape.Lq)};
  Serial serial;
  attention_forward(shape, rule, f, serial);
  return out;
}

template <typename T> void expect_the_stated_mask() {
  AttentionShape shape;
  shape.B = 2, shape.Hq = 4, shape.Hkv = 2, shape.Lq = 37, shape.Lk = shape.D = 103;
  const double dropout = 0.3;
  const uint64_t seed = 0x0123456789abcdef;
  for_each_simd_target([&] {
    const std::vector<T> out = factors<T>(shape, dropout, seed);
    size_t at = 0;
    for (int64_t head = 0; head < shape.B * shape.Hq; ++head)
      for (int64_t i = 0; i < shape.Lq; ++i)
        for (int64_t j = 0; j < shape.Lk; ++j, ++at) {
          const bool kept = dropout_keeps(seed, dropout_threshold(dropout), head, i, j);
          ASSERT_NEAR(out[at], kept ? dropout_scale(dropout) : 0, kept ? 1e-6 : 0) << "head " << head << " row " << i << " key " << j;
        }
  });
}

TEST(Dropout, Float32KernelsDropWhatIsStated) { expect_the_stated_mask<float>(); }
TEST(Dropout, Float64KernelsDropWhatIsStated) { expect_the_stated_mask<double>(); }

// A share of n fair draws is within 5 standard deviations sqrt(p (1 - p) / n): over all, and for each key, row and head.
TEST(Dropout, KeepsItsShare) {
  const int64_t heads = 8, rows = 64, keys = 96;
  for (double dropout : {0.1, 0.5, 0.9}) {
    std::vector<int64_t> by_head(heads), by_row(rows), by_key(keys);
    int64_t all = 0;
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < keys; ++j)
          if (dropout_keeps(7, dropout_threshold(dropout), head, i, j)) {
            ++all, ++by_head[static_cast<size_t>(head)], ++by_row[static_cast<size_t>(i)], ++by_key[static_cast<size_t>(j)];
          }
    const auto expect_fair = [&](int64_t kept, int64_t n) {
      const auto size = static_cast<double>(n);
      EXPECT_NEAR(static_cast<double>(kept) / size, 1 - dropout, 5 * std::sqrt(dropout * (1 - dropout) / size));
    };
    expect_fair(all, heads * rows * keys);
    for (int64_t kept : by_head) expect_fair(kept, rows * keys);
    for (int64_t kept : by_row) expect_fair(kept, heads * keys);
    for (int64_t kept : by_key) expect_fair(kept, heads * rows);
  }
}

TEST(Dropout, SeedsDiffer) {
  AttentionShape shape;
  shape.B = shape.Hq = shape.Hkv = 1, shape.Lq = 16, shape.Lk = shape.D = 64;
  EXPECT_NE(factors<float>(shape, 0.5, 1), factors<float>(shape, 0.5, 2));
  EXPECT_NE(factors<float>(shape, 0.5, 1), factors<float>(shape, 0.5, uint64_t{1} << 32 | 1));
  EXPECT_EQ(factors<float>(shape, 0.5, 1), factors<float>(shape, 0.5, 1));
}

// Backward drops what forward dropped: its gradients are the differences of forward, in float64, along a random direction of q, k, v.
TEST(Dropout, BackwardMeetsForward) {
  for (Activation h : {Activation::relu, Activation::gelu, Activation::identity, Activation::softmax})
    for (Visibility visibility : {Visibility::all, Visibility::causal, Visibility::jagged}) {
      Case c;
      c.h = h, c.visibility = visibility, c.Lq = c.Lk = 41, c.D = 8, c.group = 2, c.dropout = 0.35;
      SCOPED_TRACE(c.name());
      Problem<double> p = make_problem<double>(c);
      const Results<double> r = run_fast(p);
      const auto loss = [&] {
        const Results<double> at = run_fast(p);
        double sum = 0;
        const std::vector<double> grad_out = p.grad_out.flat();
        for (size_t i = 0; i < at.out.size(); ++i) sum += at.out[i] * grad_out[i];
        return sum;
      };
      std::mt19937_64 random(3);
      std::normal_distribution<double> normal;
      double along = 0;
      std::vector<std::pair<double*, double>> moves;
      for (const auto& [array, gradient] : {std::pair{&p.q, &r.dq}, std::pair{&p.k, &r.dk}, std::pair{&p.v, &r.dv}}) {
        size_t i = 0;
        array->for_each([&, g = gradient](double& element) {
          moves.emplace_back(&element, normal(random));
          along += moves.back().second * (*g)[i++];
        });
      }
      const double step = 1e-7;  // so short that no relu is likely to turn; rounding costs about 1e-16 / 1e-7 of the loss's terms
      for (auto& [element, by] : moves) *element += step * by;
      const double above = loss();
      for (auto& [element, by] : moves) *element -= 2 * step * by;
      const double below = loss();
      EXPECT_NEAR((above - below) / (2 * step), along, 1e-5 * (1 + std::abs(along)));
    }
}

}  // namespace
}  // namespace hinge::kernels::testing
