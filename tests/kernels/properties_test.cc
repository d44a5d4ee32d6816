// What the operation promises beyond equality with the reference: the same bits for any number of workers, padding and batch mates
// that do not matter, decoding equal to prefill, sums that can be cut, and numbers at the edge of what floats can hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "bounds.h"
#include "hinge/kernels/cpu.h"
#include "kernels/workspace.h"
#include "problem.h"

namespace hinge::kernels::testing {
namespace {

class EveryActivation : public ::testing::TestWithParam<int> {
 protected:
  Activation h() const { return static_cast<Activation>(GetParam()); }
  Case base() const {
    Case c;
    c.h = h(), c.length_rule = LengthRule::visible, c.statistics = true, c.head_parameters = true, c.D = 16;
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Attention, EveryActivation, ::testing::Range(0, static_cast<int>(kActivationNames.size())),
                         [](const auto& info) { return std::string(kActivationNames[static_cast<size_t>(info.param)]); });

template <typename T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

inline bool same_counts(const std::vector<SkipCount>& a, const std::vector<SkipCount>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SkipCount& x, const SkipCount& y) { return x.groups == y.groups && x.skipped == y.skipped; });
}

template <typename T> void expect_same_bits(const Results<T>& a, const Results<T>& b) {
  EXPECT_TRUE(same_bits(a.out, b.out)) << "out";
  EXPECT_TRUE(same_bits(a.weight_sum, b.weight_sum)) << "weight_sum";
  EXPECT_TRUE(same_bits(a.weight_log, b.weight_log)) << "weight_log";
  EXPECT_TRUE(same_bits(a.zero_share, b.zero_share)) << "zero_share";
  EXPECT_TRUE(same_bits(a.lse, b.lse)) << "lse";
  EXPECT_TRUE(same_bits(a.dq, b.dq)) << "dq";
  EXPECT_TRUE(same_bits(a.dk, b.dk)) << "dk";
  EXPECT_TRUE(same_bits(a.dv, b.dv)) << "dv";
  EXPECT_TRUE(same_bits(a.dgain, b.dgain)) << "dgain";
  EXPECT_TRUE(same_bits(a.dbias, b.dbias)) << "dbias";
  EXPECT_TRUE(same_bits(a.dalpha, b.dalpha)) << "dalpha";
  EXPECT_TRUE(same_bits(a.dmask, b.dmask)) << "dmask";
  EXPECT_TRUE(same_counts(a.forward_skipped, b.forward_skipped)) << "skipped in forward";
  EXPECT_TRUE(same_counts(a.backward_skipped, b.backward_skipped)) << "skipped in backward";
}

// Rows of [B, H, L, D] (or [B, H, L] with D = 1): those of batch row b from row `first` on.
template <typename T>
std::vector<T> rows_of(const std::vector<T>& values, int64_t H, int64_t L, int64_t D, int64_t b, int64_t first, int64_t count) {
  std::vector<T> part;
  if (values.empty()) return part;
  for (int64_t h = 0; h < H; ++h) {
    const auto begin = values.begin() + ((b * H + h) * L + first) * D;
    part.insert(part.end(), begin, begin + count * D);
  }
  return part;
}

// Everything that forward and backward give for query rows [first, first + count) of batch row b.
template <typename T> Results<T> query_rows(const Results<T>& r, const AttentionShape& s, int64_t b, int64_t first, int64_t count) {
  Results<T> part;
  part.out = rows_of(r.out, s.Hq, s.Lq, s.D, b, first, count);
  part.dq = rows_of(r.dq, s.Hq, s.Lq, s.D, b, first, count);
  part.weight_sum = rows_of(r.weight_sum, s.Hq, s.Lq, 1, b, first, count);
  part.weight_log = rows_of(r.weight_log, s.Hq, s.Lq, 1, b, first, count);
  part.zero_share = rows_of(r.zero_share, s.Hq, s.Lq, 1, b, first, count);
  part.lse = rows_of(r.lse, s.Hq, s.Lq, 1, b, first, count);
  return part;
}

template <typename T>
void add_key_rows(Results<T>& part, const Results<T>& r, const AttentionShape& s, int64_t b, int64_t first, int64_t count) {
  part.dk = rows_of(r.dk, s.Hkv, s.Lk, s.D, b, first, count);
  part.dv = rows_of(r.dv, s.Hkv, s.Lk, s.D, b, first, count);
}

// Both results are right within the bounds, so they differ by at most twice as much.
template <typename T> Results<double> twice(Results<T> bounds) {
  for (auto* values : {&bounds.out, &bounds.weight_sum, &bounds.weight_log, &bounds.zero_share, &bounds.lse, &bounds.dq, &bounds.dk,
                       &bounds.dv, &bounds.dgain, &bounds.dbias, &bounds.dalpha})
    for (double& value : *values) value *= 2;
  return bounds;
}

// The rows [q_first, q_first + q_count) and keys [k_first, k_first + k_count) of batch row b as a problem of their own.
template <typename T> Problem<T> cut(const Problem<T>& p, int64_t b, int64_t q_first, int64_t q_count, int64_t k_first, int64_t k_count) {
  Problem<T> part;
  part.shape = p.shape, part.rule = p.rule, part.statistics = p.statistics, part.parameter_gradients = p.parameter_gradients;
  part.gain = p.gain, part.bias = p.bias, part.alpha = p.alpha;
  part.shape.B = 1, part.shape.Lq = q_count, part.shape.Lk = k_count, part.shape.sequences = 0;
  part.point_into_own_vectors();
  part.allocate();
  const auto copy = [&](const Array<T>& from, const Array<T>& to, int64_t first) {
    for (int64_t h = 0; h < to.H; ++h)
      for (int64_t l = 0; l < to.L; ++l)
        for (int64_t d = 0; d < to.D; ++d) to.at(0, h, l, d) = from.at(b, h, first + l, d);
  };
  copy(p.q, part.q, q_first), copy(p.grad_out, part.grad_out, q_first), copy(p.k, part.k, k_first), copy(p.v, part.v, k_first);
  part.grad_weight_sum = rows_of(p.grad_weight_sum, p.shape.Hq, p.shape.Lq, 1, b, q_first, q_count);
  part.grad_weight_log = rows_of(p.grad_weight_log, p.shape.Hq, p.shape.Lq, 1, b, q_first, q_count);
  return part;
}

TEST_P(EveryActivation, SameBitsForAnyNumberOfWorkers) {
  for (Visibility visibility : {Visibility::all, Visibility::causal, Visibility::jagged})
    for (bool everything : {true, false}) {
      Case c = base();
      c.visibility = visibility, c.group = 2, c.Lq = c.Lk = quick() ? 150 : 330, c.B = 1, c.dropout = everything ? 0.1 : 0;
      c.statistics = c.parameter_gradients = everything;
      const Problem<float> p = make_problem<float>(c);
      for_each_simd_target([&] {
        const Results<float> alone = run_fast(p);
        for (int workers : {2, 3, 5}) {
          SCOPED_TRACE(std::to_string(workers) + " workers, " + c.name());
          Threads threads(workers);
          expect_same_bits(run_fast(p, threads), alone);
          Backwards backwards(workers);
          expect_same_bits(run_fast(p, backwards), alone);
        }
      });
    }
  for (const auto& [rows, depth] : {std::pair(40, base().D), {3, 64}, {1, 64}}) {
    Case c = base();
    c.Lq = rows, c.Lk = 51, c.D = depth;
    Threads threads(3);
    const Problem<double> p = make_problem<double>(c);
    expect_same_bits(run_fast(p, threads), run_fast(p));
    const Problem<float> single = make_problem<float>(c);
    expect_same_bits(run_fast(single, threads), run_fast(single));
  }
}

// Masks whose gradient is a sum over batch rows, heads, rows or keys; a window.
TEST(Attention, SameBitsWithMasks) {
  for (const Activation h : {Activation::relu, Activation::silu, Activation::softmax})
    for (size_t shape = 0; shape <= kMaskShapeNames.size(); ++shape) {
      Case c;
      c.h = h, c.B = 3, c.group = 2, c.Lq = 130, c.Lk = 300, c.D = 24, c.mask_shape = static_cast<MaskShape>(shape);
      c.mask = MaskKind::additive;
      if (shape == kMaskShapeNames.size()) c.mask = MaskKind::none, c.mask_shape = MaskShape::full, c.window_left = 40;
      const Problem<float> p = make_problem<float>(c);
      const Results<float> alone = run_fast(p);
      for (int workers : {2, 5, 16}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + c.name());
        Threads threads(workers);
        expect_same_bits(run_fast(p, threads), alone);
        Backwards backwards(workers);
        expect_same_bits(run_fast(p, backwards), alone);
      }
    }
}

// One head so long that it is cut in both directions.
TEST(Attention, SameBitsForALongSequence) {
  for (Activation h : {Activation::relu, Activation::gelu, Activation::softmax})
    for (bool everything : {true, false}) {
      Case c;
      c.h = h, c.visibility = Visibility::causal, c.B = 1, c.Hkv = 1, c.Lq = c.Lk = quick() ? 700 : 1500;
      c.statistics = c.parameter_gradients = everything;
      const Problem<float> p = make_problem<float>(c);
      const Results<float> alone = run_fast(p);
      for (int workers : {2, 5}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + c.name());
        Threads threads(workers);
        expect_same_bits(run_fast(p, threads), alone);
        Backwards backwards(workers);
        expect_same_bits(run_fast(p, backwards), alone);
      }
    }
}

// So many keys that few heads are packed at a time.
TEST(Attention, SameBitsForManyKeys) {
  for (bool parameter_gradients : {true, false}) {
    Case c;
    c.h = Activation::relu, c.B = 1, c.Hkv = 3, c.Lq = 5, c.Lk = quick() ? 5000 : 26000, c.D = 128;
    c.parameter_gradients = parameter_gradients;
    const Problem<float> p = make_problem<float>(c);
    Threads threads(2);
    expect_same_bits(run_fast(p, threads), run_fast(p));
  }
}

// Callers on different threads do not meet.
TEST(Attention, ConcurrentCallers) {
  std::vector<Case> cases(4);
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].Lq = cases[i].Lk = 60 + 40 * static_cast<int64_t>(i), cases[i].h = static_cast<Activation>(3 * i);
  }
  std::vector<Results<float>> alone, together(cases.size());
  for (const Case& c : cases) alone.push_back(run_fast(make_problem<float>(c)));
  std::vector<std::thread> callers;
  for (size_t i = 0; i < cases.size(); ++i)
    callers.emplace_back([&, i] {
      const Problem<float> p = make_problem<float>(cases[i]);
      for (int repeat = 0; repeat < 5; ++repeat) together[i] = run_fast(p);
    });
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < cases.size(); ++i) expect_same_bits(together[i], alone[i]);
}

TEST_P(EveryActivation, SameBitsInEveryLayout) {
  for (bool everything : {true, false}) {
    Case c = base();
    c.Lq = c.Lk = 45, c.D = 24, c.statistics = c.parameter_gradients = everything;
    const Results<float> wanted = run_fast(make_problem<float>(c));
    for (Layout layout : {Layout::packed, Layout::padded}) {
      c.layout = layout;
      SCOPED_TRACE(c.name());
      expect_same_bits(run_fast(make_problem<float>(c)), wanted);
    }
  }
}

// A batch row with key_lengths[b] keys, whatever stands in the padding, is the short problem on its own. Causal rows are aligned with the
// padded length: there the rows and keys of a square problem are the short one, and the rows behind them are padding, too.
TEST_P(EveryActivation, PaddingAndBatchMatesDoNotMatter) {
  for (Visibility visibility : {Visibility::key_lengths, Visibility::causal_key_lengths}) {
    Case c = base();
    c.visibility = visibility, c.B = 3, c.Lq = c.causal() ? 83 : 29, c.Lk = 83;
    Problem<float> p = make_problem<float>(c);
    p.key_lengths = {17, 0, 70};
    p.point_into_own_vectors();
    for (int64_t b = 0; b < 3; ++b) {
      SCOPED_TRACE("batch row " + std::to_string(b) + " " + c.name());
      const int64_t n = p.key_lengths[static_cast<size_t>(b)];
      for (int64_t head = 0; head < c.Hkv; ++head)
        for (int64_t j = n; j < c.Lk; ++j)
          for (int64_t d = 0; d < c.D; ++d) p.k.at(b, head, j, d) = p.v.at(b, head, j, d) = std::nanf("");
      const int64_t rows = c.causal() ? n : c.Lq;
      Problem<float> alone = cut(p, b, 0, rows, 0, n);
      const Results<float> wanted = run_fast(alone), whole = run_fast(p);
      Results<float> got = query_rows(whole, p.shape, b, 0, rows);
      add_key_rows(got, whole, p.shape, b, 0, n);
      if (c.causal()) got.dk = wanted.dk, got.dv = wanted.dv;  // the rows of the padding have a share in those of the whole
      got.dgain = wanted.dgain, got.dbias = wanted.dbias, got.dalpha = wanted.dalpha;  // of the whole batch in `whole`
      expect_within(got, wanted, twice(error_bounds(alone)));
      for (float gradient : rows_of(whole.dk, c.Hkv, c.Lk, c.D, b, n, c.Lk - n)) ASSERT_EQ(gradient, 0);
      for (float gradient : rows_of(whole.dv, c.Hkv, c.Lk, c.D, b, n, c.Lk - n)) ASSERT_EQ(gradient, 0);
    }
    // With the padding full of NaN, nothing that is visible is one.
    const Results<float> whole = run_fast(p);
    for (const auto* values : {&whole.out, &whole.weight_sum, &whole.weight_log, &whole.zero_share, &whole.dq, &whole.dk, &whole.dv})
      for (float value : *values) ASSERT_TRUE(std::isfinite(value));
    for (const auto* values : {&whole.dgain, &whole.dbias, &whole.dalpha})
      for (double value : *values) ASSERT_TRUE(std::isfinite(value));
  }
}

// A jagged batch is its sequences one by one.
TEST_P(EveryActivation, JaggedIsOneByOne) {
  for (Visibility visibility : {Visibility::jagged, Visibility::causal_jagged}) {
    Case c = base();
    c.visibility = visibility, c.Lq = 60, c.Lk = 77, c.group = 2;
    const Problem<float> p = make_problem<float>(c);
    const Results<float> whole = run_fast(p);
    for (int64_t s = 0; s < p.shape.sequences; ++s) {
      SCOPED_TRACE("sequence " + std::to_string(s) + " " + c.name());
      const Sequence seq = sequence(p.shape, s);
      const Problem<float> alone = cut(p, 0, seq.q_begin, seq.lq, seq.k_begin, seq.lk);
      const Results<float> wanted = run_fast(alone);
      Results<float> got = query_rows(whole, p.shape, 0, seq.q_begin, seq.lq);
      add_key_rows(got, whole, p.shape, 0, seq.k_begin, seq.lk);
      got.dgain = wanted.dgain, got.dbias = wanted.dbias, got.dalpha = wanted.dalpha;
      expect_within(got, wanted, twice(error_bounds(alone)));
    }
  }
}

// Row by row against a growing cache, as a decoder runs.
TEST_P(EveryActivation, DecodingEqualsPrefill) {
  Case c = base();
  c.visibility = Visibility::causal, c.B = 1, c.Lq = c.Lk = quick() ? 20 : 50, c.bias_log_n = true;
  const Problem<float> p = make_problem<float>(c);
  for_each_simd_target([&] {
    const Results<float> prefill = run_fast(p);
    for (int64_t i = 0; i < c.Lq; ++i) {
      const Problem<float> step = cut(p, 0, i, 1, 0, i + 1);
      Results<float> wanted = run_fast(step), got = query_rows(prefill, p.shape, 0, i, 1);
      got.dk = wanted.dk, got.dv = wanted.dv;  // prefill has those of all rows together
      got.dgain = wanted.dgain, got.dbias = wanted.dbias, got.dalpha = wanted.dalpha;
      expect_within(got, wanted, twice(error_bounds(step)));
    }
  });
}

// With fewer queries than keys, causal is the last rows of the square problem.
TEST_P(EveryActivation, CausalIsAlignedToTheRight) {
  Case c = base();
  c.visibility = Visibility::causal, c.B = 1, c.Lq = c.Lk = 70;
  const Problem<float> p = make_problem<float>(c);
  const Problem<float> last = cut(p, 0, 70 - 23, 23, 0, 70);
  const Results<float> square = run_fast(p);
  Results<float> wanted = run_fast(last), got = query_rows(square, p.shape, 0, 70 - 23, 23);
  got.dk = wanted.dk, got.dv = wanted.dv, got.dgain = wanted.dgain, got.dbias = wanted.dbias, got.dalpha = wanted.dalpha;
  expect_within(got, wanted, twice(error_bounds(last)));
}

// Outputs and statistics over parts of the keys add up to those over all, and so do the gradients of the queries; those of the keys are the
// parts' one after another. (With N and the alignment of the whole: a part knows neither, so the length rule is `fixed` here.)
TEST_P(EveryActivation, KeyRangesAddUp) {
  if (h() == Activation::softmax) GTEST_SKIP() << "softmax needs all keys at once";
  Case c = base();
  c.length_rule = LengthRule::fixed, c.B = 1, c.Lq = 33, c.Lk = 90;
  const Problem<float> p = make_problem<float>(c);
  const Results<float> whole = run_fast(p);
  Results<float> sum;
  int64_t first = 0;
  for (int64_t end : {0, 1, 37, 48, 90}) {
    const Problem<float> range = cut(p, 0, 0, c.Lq, first, end - first);
    const Results<float> part = run_fast(range);
    Results<float> same_keys;
    add_key_rows(same_keys, whole, p.shape, 0, first, end - first);
    const Results<double> bounds = twice(error_bounds(range));
    expect_within("dk", part.dk, same_keys.dk, bounds.dk);
    expect_within("dv", part.dv, same_keys.dv, bounds.dv);
    std::vector<float> zeros = part.zero_share;
    for (float& share : zeros) share *= static_cast<float>(end - first) / static_cast<float>(c.Lk);
    const auto add = [](auto& total, const auto& values) {
      total.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) total[i] += values[i];
    };
    add(sum.out, part.out), add(sum.weight_sum, part.weight_sum), add(sum.weight_log, part.weight_log), add(sum.dq, part.dq);
    add(sum.zero_share, zeros);
    add(sum.dgain, part.dgain), add(sum.dbias, part.dbias), add(sum.dalpha, part.dalpha);
    first = end;
  }
  sum.dk = whole.dk, sum.dv = whole.dv;  // compared part by part
  expect_within(sum, whole, twice(error_bounds(p)));
}

// More queries than keys under causal: the first rows see nothing.
TEST_P(EveryActivation, RowsThatSeeNothingAreZero) {
  Case c = base();
  c.visibility = Visibility::causal, c.Lq = 40, c.Lk = 11, c.bias_log_n = true;
  Problem<float> p = make_problem<float>(c);
  // What such a row holds does not matter either.
  for (int64_t b = 0; b < c.B; ++b)
    for (int64_t head = 0; head < c.Hkv; ++head)
      for (int64_t i = 0; i < 29; ++i)
        for (int64_t d = 0; d < c.D; ++d) p.q.at(b, head, i, d) = p.grad_out.at(b, head, i, d) = std::nanf("");
  const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
  for_each_simd_target([&] {
    const Results<float> r = run_fast(p);
    for (int64_t b = 0; b < c.B; ++b) {
      const Results<float> hidden = query_rows(r, p.shape, b, 0, 29);
      for (const auto* values : {&hidden.out, &hidden.weight_sum, &hidden.weight_log, &hidden.zero_share, &hidden.dq})
        for (float value : *values) ASSERT_EQ(value, 0);
      for (float value : hidden.lse) ASSERT_EQ(value, -std::numeric_limits<float>::infinity());
    }
    expect_within("dk", r.dk, wanted.dk, bounds.dk);
    expect_within("dv", r.dv, wanted.dv, bounds.dv);
    expect_within("dgain", r.dgain, wanted.dgain, bounds.dgain);
    expect_within("dbias", r.dbias, wanted.dbias, bounds.dbias);
    expect_within("dalpha", r.dalpha, wanted.dalpha, bounds.dalpha);
  });
}

// The causal future may hold anything: rows before it do not change, not even by a bit of a NaN.
TEST_P(EveryActivation, TheFutureIsNeverSeen) {
  Case c = base();
  c.visibility = Visibility::causal, c.B = 1, c.Lq = c.Lk = 75;
  Problem<float> p = make_problem<float>(c);
  const int64_t poisoned = 41;  // this key and its value; rows 41 and later see it
  for (float poison : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (int64_t d = 0; d < c.D; ++d) p.k.at(0, 0, poisoned, d) = p.v.at(0, 0, poisoned, d) = poison;
    for_each_simd_target([&] {
      const Results<float> before = query_rows(run_fast(p), p.shape, 0, 0, poisoned);
      const Results<double> wanted = query_rows(run_reference(p.as<double>()), p.shape, 0, 0, poisoned);
      const Problem<float> past = cut(p, 0, 0, poisoned, 0, poisoned);
      const Results<double> bounds = error_bounds(past);
      expect_within("out", before.out, wanted.out, bounds.out);
      expect_within("weight_sum", before.weight_sum, wanted.weight_sum, bounds.weight_sum);
      expect_within("weight_log", before.weight_log, wanted.weight_log, bounds.weight_log);
      expect_within("dq", before.dq, wanted.dq, bounds.dq);
    });
  }
}

// A NaN that is seen is not swallowed, by relu least of all.
TEST_P(EveryActivation, VisibleNanShows) {
  for (const auto& [in_query, rows] : {std::pair(true, 21), {false, 21}, {true, 3}, {false, 3}, {false, 1}}) {
    Case c = base();
    c.B = 1, c.Lq = rows, c.Lk = 50, c.D = rows < 5 ? 64 : c.D;
    const int64_t bad_row = rows / 2;
    Problem<float> p = make_problem<float>(c);
    (in_query ? p.q.at(0, 0, bad_row, 5) : p.k.at(0, 0, 44, 5)) = std::nanf("");
    for_each_simd_target([&] {
      const Results<float> r = run_fast(p);
      for (int64_t i = 0; i < c.Lq; ++i) {
        const bool poisoned = !in_query || i == bad_row;
        for (int64_t d = 0; d < c.D; ++d) {
          ASSERT_EQ(std::isnan(r.out[static_cast<size_t>(i * c.D + d)]), poisoned) << "head 0, row " << i;
          ASSERT_FALSE(std::isnan(r.out[static_cast<size_t>((c.Lq + i) * c.D + d)])) << "head 1, row " << i;
        }
        // (Softmax's weights always sum to 1, and a kernel may say so without looking.)
        ASSERT_TRUE(std::isnan(r.weight_sum[static_cast<size_t>(i)]) == poisoned || h() == Activation::softmax) << "row " << i;
      }
    });
  }
}

// Scores of about +-1e18 (1e15 where h squares them) and +-1e-30: finite where the exact result is, and right if tiny or if h is no sharper
// for large scores than for small ones.
TEST_P(EveryActivation, HugeAndTinyScores) {
  const double huge = h() == Activation::relu2 ? 1e15 : 1e18, tiny = 1e-30;
  for (const auto& [scale, rows] : {std::pair(huge, 20), {tiny, 20}, {huge, 3}, {tiny, 3}}) {
    Case c = base();
    c.scale = scale, c.Lq = rows, c.Lk = 35, c.D = rows < 5 ? 64 : c.D, c.head_parameters = false;
    SCOPED_TRACE("scale " + std::to_string(scale));
    const Problem<float> p = make_problem<float>(c);
    const Results<double> wanted = run_reference(p.as<double>());
    const auto fits = [](double value) { return std::abs(value) < 1e37; };
    for_each_simd_target([&] {
      const Results<float> r = run_fast(p);
      const auto expect_finite = [&](const char* what, const auto& got, const auto& exact) {
        ASSERT_EQ(got.size(), exact.size());
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(std::isfinite(got[i]) || !fits(static_cast<double>(exact[i]))) << what << " " << i << " should be about " << exact[i];
      };
      expect_finite("out", r.out, wanted.out);
      expect_finite("weight_sum", r.weight_sum, wanted.weight_sum);
      expect_finite("weight_log", r.weight_log, wanted.weight_log);
      expect_finite("dv", r.dv, wanted.dv);
      if (scale < 1 || h() != Activation::relu2) {  // relu2's go as the cube of the scale: beyond float
        expect_finite("dq", r.dq, wanted.dq);
        expect_finite("dk", r.dk, wanted.dk);
      }
      if (scale < 1) expect_within(r, wanted, error_bounds(p));
      if (h() == Activation::relu || h() == Activation::relu2 || h() == Activation::identity) {
        const Results<double> bounds = error_bounds(p);
        expect_within("out", r.out, wanted.out, bounds.out);
        expect_within("weight_sum", r.weight_sum, wanted.weight_sum, bounds.weight_sum);
        expect_within("dv", r.dv, wanted.dv, bounds.dv);
      }
    });
  }
}

// Softmax, scores of -inf in a float: keys without weight, even where a whole first block of keys has no other score.
class SoftmaxOfWidth : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Attention, SoftmaxOfWidth, ::testing::Values(1, 64));
TEST_P(SoftmaxOfWidth, KeysWithoutWeight) {
  Case c;
  c.h = Activation::softmax, c.B = 1, c.Hkv = 1, c.Lq = 2, c.Lk = 300, c.D = GetParam(), c.scale = 1, c.statistics = true;
  Problem<float> p = make_problem<float>(c);
  p.q.for_each([](float& element) { element = 1e30f; });
  for (int64_t first : {0, 1, 255, 256, 257, 299}) {  // the keys from here on have the score 0, those before -inf
    SCOPED_TRACE("first key with a weight: " + std::to_string(first));
    for (int64_t j = 0; j < c.Lk; ++j)
      for (int64_t d = 0; d < c.D; ++d) p.k.at(0, 0, j, d) = j < first ? -1e30f : 0;
    const Problem<float> alone = cut(p, 0, 0, c.Lq, first, c.Lk - first);
    Results<double> wanted = run_reference(alone.as<double>());
    std::fill(wanted.zero_share.begin(), wanted.zero_share.end(), static_cast<double>(first) / static_cast<double>(c.Lk));
    const Results<double> bounds = error_bounds(alone);
    for_each_simd_target([&] {
      const Results<float> whole = run_fast(p);
      Results<float> got = query_rows(whole, p.shape, 0, 0, c.Lq);
      add_key_rows(got, whole, p.shape, 0, first, c.Lk - first);
      expect_within(got, wanted, bounds);
      for (const auto* values : {&whole.dk, &whole.dv})
        for (float gradient : rows_of(*values, 1, c.Lk, c.D, 0, 0, first)) ASSERT_EQ(gradient, 0);
    });
  }
  // No key with a weight: 0/0, as in PyTorch.
  p.k.for_each([](float& element) { element = -1e30f; });
  for_each_simd_target([&] {
    const Results<float> r = run_fast(p);
    for (const auto* values : {&r.out, &r.weight_sum, &r.weight_log})
      for (float value : *values) ASSERT_TRUE(std::isnan(value));
    for (float value : r.zero_share) ASSERT_EQ(value, 0);
    for (float value : r.lse) ASSERT_EQ(value, -std::numeric_limits<float>::infinity());
  });
}

// Sizes of zero are no work and no harm.
TEST_P(EveryActivation, EmptySizes) {
  for (const auto& [B, Lq, Lk] : std::vector<std::array<int64_t, 3>>{{0, 5, 5}, {2, 0, 5}, {2, 5, 0}, {2, 0, 0}}) {
    Case c = base();
    c.B = B, c.Lq = Lq, c.Lk = Lk;
    SCOPED_TRACE(c.name());
    const Problem<float> p = make_problem<float>(c);
    const Results<double> wanted = run_reference(p.as<double>());
    for_each_simd_target([&] { expect_within(run_fast(p), wanted, error_bounds(p)); });
  }
}

// Relu with a bias that closes or opens every key.
TEST(Attention, AllZeroAndNoZeroRows) {
  for (Activation h : {Activation::relu, Activation::relu2, Activation::relu6})
    for (double bias : {-100.0, 100.0}) {
      SCOPED_TRACE(std::string(activation_name(h)) + " bias " + std::to_string(bias));
      Case c;
      c.h = h, c.Lq = 50, c.Lk = 70, c.statistics = true, c.head_parameters = true;
      Problem<float> p = make_problem<float>(c);
      p.bias.assign(p.bias.size(), bias);
      p.point_into_own_vectors();
      const Results<double> wanted = run_reference(p.as<double>());
      for_each_simd_target([&] {
        const Results<float> r = run_fast(p);
        expect_within(r, wanted, error_bounds(p));
        for (float share : r.zero_share) ASSERT_EQ(share, bias < 0 ? 1 : 0);
        if (bias > 0) return;
        for (const auto* values : {&r.out, &r.weight_sum, &r.weight_log, &r.dq, &r.dk, &r.dv})
          for (float value : *values) ASSERT_EQ(value, 0);
        for (const auto* values : {&r.dgain, &r.dbias, &r.dalpha})
          for (double value : *values) ASSERT_EQ(value, 0);
      });
    }
}

// A gain of zero gives zero, and its gradient is still that of the reference.
TEST_P(EveryActivation, ZeroGain) {
  if (h() == Activation::softmax) GTEST_SKIP() << "softmax has no gain";
  for (bool statistics : {false, true}) {
    Case c = base();
    c.Lq = 23, c.Lk = 40, c.statistics = statistics;
    Problem<float> p = make_problem<float>(c);
    p.gain = {0, 1.5};
    p.point_into_own_vectors();
    const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
    ASSERT_NE(wanted.dgain[0], 0);
    for_each_simd_target([&] { expect_within(run_fast(p), wanted, bounds); });
  }
}

// Nor does the gradient of gain drown where gain times a gradient is too small for the type.
TEST_P(EveryActivation, TinyGain) {
  if (h() == Activation::softmax) GTEST_SKIP() << "softmax has no gain";
  for (bool statistics : {false, true})
    for (bool causal : {false, true}) {
      Case c = base();
      c.Hkv = 1, c.group = 3, c.Lq = 23, c.Lk = 40, c.statistics = statistics;
      c.visibility = causal ? Visibility::causal : Visibility::all;
      for (IdentityOrder order : {IdentityOrder::quadratic, IdentityOrder::linear}) {
        if (order == IdentityOrder::linear && (h() != Activation::identity || statistics)) continue;
        c.identity_order = h() == Activation::identity ? order : IdentityOrder::automatic;
        SCOPED_TRACE(c.name());
        Problem<float> p = make_problem<float>(c);
        p.gain = {1e-46, -3e-30, 1.5};
        p.point_into_own_vectors();
        const Results<double> wanted = run_reference(p.as<double>()), bounds = error_bounds(p);
        ASSERT_NE(wanted.dgain[0], 0);
        for_each_simd_target([&] { expect_within(run_fast(p), wanted, bounds); });

        Problem<double> p64 = p.as<double>();
        p64.gain = {1e-310, -1e-200, 1.5};
        p64.point_into_own_vectors();
        expect_within(run_fast(p64), run_reference(p64.as<long double>()), error_bounds(p64));
      }
    }
}

// Memory of forward and backward grows with L D, not with L^2: one head of 8,192 queries and keys takes a few times its packed keys. All
// its scores would be 256 MB, and a bit for each of them 8 MB.
TEST(Attention, ScratchStaysSmall) {
  constexpr int64_t L = 8192, D = 16;
  const int64_t panel = 2 * simd_vector_bytes() / static_cast<int64_t>(sizeof(float));  // of two vectors
  const int64_t padded = (D + panel - 1) / panel * panel;
  for (Activation h : {Activation::relu, Activation::softmax}) {
    Case c;
    c.h = h, c.B = 1, c.Hkv = 1, c.Lq = c.Lk = L, c.D = D;
    const Problem<float> p = make_problem<float>(c);
    for (int workers : {1, 4}) {
      take_scratch_peak();
      Threads threads(workers);
      run_fast(p, threads);
      // Backward packs k and v for scores and k for sums, and each worker has rows and tiles of its own. None of it grows with L^2.
      const int64_t packed = L * (2 * D + padded), worker = 3072 * padded + (48 << 10);
      const size_t scratch = take_scratch_peak();
      EXPECT_GT(scratch, static_cast<size_t>(packed) * sizeof(float));
      EXPECT_LE(scratch, static_cast<size_t>(packed + workers * worker) * sizeof(float))
          << activation_name(h) << ", " << workers << " workers";
    }
  }
}

// Memory that cannot be had is an exception, and the next call starts afresh.
TEST(Attention, ScratchThatCannotBeHad) {
  take_scratch_peak();
  EXPECT_THROW(Workspace::get(std::numeric_limits<size_t>::max() / 2 + 1), std::bad_alloc);
  EXPECT_EQ(take_scratch_peak(), 0u);
  EXPECT_NE(Workspace::get(64), nullptr);
}

}  // namespace
}  // namespace hinge::kernels::testing
