// Skipping of whole groups of zero weights: what is reported is possible, it happens where it must pay, and the results stay right.
#include <gtest/gtest.h>

#include "bounds.h"
#include "problem.h"

namespace hinge::kernels::testing {
namespace {

// Every query has only positive entries, and so has every key with an odd number; the others are negative: half of the columns of the
// weights are zero.
Problem<float> half_of_the_columns_zero(Activation h) {
  Case c;
  c.h = h, c.B = 1, c.Hkv = 2, c.Lq = 200, c.Lk = 300, c.D = 64, c.statistics = true;
  Problem<float> p = make_problem<float>(c);
  p.q.for_each([](float& element) { element = std::abs(element); });
  for (int64_t head = 0; head < c.Hkv; ++head)
    for (int64_t j = 0; j < c.Lk; ++j)
      for (int64_t d = 0; d < c.D; ++d) {
        float& element = p.k.at(0, head, j, d);
        element = j % 2 ? std::abs(element) : -std::abs(element);
      }
  return p;
}

TEST(Skip, HappensAndChangesNothing) {
  for (Activation h : {Activation::relu, Activation::relu2, Activation::relu6}) {
    SCOPED_TRACE(activation_name(h));
    const Problem<float> p = half_of_the_columns_zero(h);
    const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
    for_each_simd_target([&] {
      const Results<float> r = run_fast(p);
      expect_within(r, wanted, bounds);
      for (const auto* counts : {&r.forward_skipped, &r.backward_skipped})
        for (const SkipCount& count : *counts) {
          EXPECT_GT(count.groups, 0);
          EXPECT_GT(count.skipped, 0);
          EXPECT_LE(count.share(), 0.5 + 1e-9) << "only half of the columns is zero";
        }
    });
  }
}

// Where a block of 256 keys had next to nothing to leave out, the following seven are not looked at, whatever they hold.
TEST(Skip, RestsWhereItDoesNotPay) {
  Case c;
  c.B = 1, c.Hkv = 1, c.Lq = 6, c.Lk = 16 * 256, c.D = 8;
  Problem<float> p = make_problem<float>(c);
  p.q.for_each([](float& element) { element = std::abs(element); });
  for (int64_t j = 0; j < c.Lk; ++j)
    for (int64_t d = 0; d < c.D; ++d) {
      float& element = p.k.at(0, 0, j, d);
      element = j < 256 ? std::abs(element) : -std::abs(element);
    }
  for_each_simd_target([&] {
    const SkipCount count = run_fast(p).forward_skipped.at(0);
    EXPECT_EQ(count.groups, c.Lk);
    EXPECT_EQ(count.skipped, 8 * 256);
  });
}

// The second half of the rows has weight zero for half of the keys, and a value behind such a key is NaN: what is left out shows in the
// result. The watch for zeros gives up in the first half, or starts anew in the second; both by the shape, not by who runs what.
TEST(Skip, IsTheSameForAnyNumberOfWorkers) {
  for (int64_t heads : {1, 5, 80}) {
    Case c;
    c.B = 1, c.Hkv = heads, c.Lq = 192, c.Lk = 200;
    Problem<float> p = make_problem<float>(c);
    p.k.for_each([](float& element) { element = std::abs(element); });
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < c.Lq; ++i)
        for (int64_t d = 0; d < c.D; ++d) {
          float& element = p.q.at(0, head, i, d);
          element = d > 0 && i >= c.Lq / 2 ? 0 : std::abs(element);
        }
      for (int64_t j = 0; j < c.Lk; j += 2) p.k.at(0, head, j, 0) *= -0.01f;
      p.v.at(0, head, 100, 3) = std::nanf("");
    }
    int64_t skipped = 0;
    for_each_simd_target([&] {
      const Results<float> alone = run_fast(p);
      for (const SkipCount& count : alone.forward_skipped) skipped += count.skipped;
      for (int workers : {2, 3, 32}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(heads) + " heads");
        Backwards backwards(workers);
        const Results<float> r = run_fast(p, backwards);
        for (const auto& [got, wanted] :
             {std::pair(&r.forward_skipped, &alone.forward_skipped), std::pair(&r.backward_skipped, &alone.backward_skipped)})
          for (size_t head = 0; head < got->size(); ++head) {
            ASSERT_EQ((*got)[head].groups, (*wanted)[head].groups);
            ASSERT_EQ((*got)[head].skipped, (*wanted)[head].skipped);
          }
        for (size_t i = 0; i < r.out.size(); ++i)
          ASSERT_TRUE(r.out[i] == alone.out[i] || (std::isnan(r.out[i]) && std::isnan(alone.out[i]))) << i;
      }
    });
    EXPECT_TRUE(heads > 5 || skipped > 0);
  }
}

TEST(Skip, CountsAreBounded) {
  for (size_t h = 0; h < kActivationNames.size(); ++h) {
    SCOPED_TRACE(kActivationNames[h]);
    const auto activation = static_cast<Activation>(h);
    for (double bias : {-100.0, -1.0, 100.0}) {
      Case c;
      c.h = activation, c.Lq = 100, c.Lk = 120, c.visibility = Visibility::causal, c.head_parameters = true;
      Problem<float> p = make_problem<float>(c);
      p.bias.assign(p.bias.size(), bias);
      p.point_into_own_vectors();
      for_each_simd_target([&] {
        const Results<float> r = run_fast(p);
        for (const auto* counts : {&r.forward_skipped, &r.backward_skipped})
          for (const SkipCount& count : *counts) {
            ASSERT_GE(count.skipped, 0);
            ASSERT_LE(count.skipped, count.groups);
            ASSERT_TRUE(has_zeros(activation) || count.groups == 0) << "nothing can be skipped";
            ASSERT_TRUE(bias < 0 || count.skipped == 0) << "no weight is zero";
          }
      });
    }
  }
}

}  // namespace
}  // namespace hinge::kernels::testing
