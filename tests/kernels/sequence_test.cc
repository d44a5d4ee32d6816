// The kernels of sequence models against plain loops in float64: odd sizes, every SIMD target, with and without dropout, and the same bits
// for any number of workers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "hinge/kernels/embedding.h"
#include "hinge/kernels/hidden_activation.h"
#include "hinge/kernels/residual_norm.h"
#include "hinge/kernels/row_regulariser.h"
#include "hinge/kernels/smoothed_cross_entropy.h"
#include "hinge/kernels/sparse_attention.h"
#include "kernels/sequence_reference.h"
#include "problem.h"
#include "threads.h"

namespace hinge::kernels::testing {
namespace {

using reference::Numbers;

template <typename T> std::vector<T> draw(int64_t n, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<T> x(static_cast<size_t>(n));
  for (T& value : x) value = static_cast<T>(scale * normal(generator));
  return x;
}

std::vector<int64_t> draw_integers(int64_t n, int64_t end, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<int64_t> x(static_cast<size_t>(n));
  for (int64_t& value : x) value = static_cast<int64_t>(generator() % static_cast<uint64_t>(end));
  return x;
}

template <typename T> Numbers exact(const std::vector<T>& x) { return {x.begin(), x.end()}; }

// Relative to the largest expected number, at least 1. Sums of `terms` numbers of that size.
template <typename T> void expect_close(const std::vector<T>& got, const Numbers& expected, int64_t terms, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double worst = 0, size = 1;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(static_cast<double>(got[i]))) << what << " " << i;
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
    size = std::max(size, std::abs(expected[i]));
  }
  EXPECT_LE(worst, size * static_cast<double>(terms + 32) * std::numeric_limits<T>::epsilon()) << what;
}

// Runs with one worker, with three, and backwards; the results must be the same bits. `run` gives everything as one vector.
template <class Run> auto same_for_all_workers(const Run& run) {
  Serial serial;
  Threads threads(3);
  Backwards backwards(2);
  const auto first = run(serial);
  EXPECT_EQ(run(threads), first) << "results depend on the number of workers";
  EXPECT_EQ(run(backwards), first) << "results depend on the order of tasks";
  return first;
}

template <typename T> std::vector<T> joined(std::initializer_list<std::vector<T>> parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Dropout kNone{}, kSome{0.3, 12345};

// ---- dropout of rows

TEST(RowDropout, DropsTheShareThatIsAskedForAndKeepsTheMean) {
  const int64_t rows = 200, width = 130;
  Numbers ones(static_cast<size_t>(rows * width), 1);
  const Numbers kept = reference::dropped(kSome, ones, width);
  const double mean = std::accumulate(kept.begin(), kept.end(), 0.0) / static_cast<double>(kept.size());
  // A share of n draws is right to sqrt(p (1 - p) / n) = 0.003; five of these.
  EXPECT_NEAR(static_cast<double>(std::count(kept.begin(), kept.end(), 0)) / static_cast<double>(kept.size()), 0.3, 0.015);
  EXPECT_NEAR(mean, 1, 0.022);
  EXPECT_NE(kept, reference::dropped({0.3, 12346}, ones, width));
}

// ---- embeddings

template <typename T> void embedding_matches() {
  for (const int64_t width : {1, 5, 16, 67})
    for (const Dropout& dropout : {kNone, kSome}) {
      const int64_t tokens = 150, vocabulary = 11, most = 60;
      const std::vector<int64_t> offsets = {0, 60, 60, 61, tokens - 30, tokens}, token = draw_integers(tokens, vocabulary, 3);
      std::vector<int64_t> place(static_cast<size_t>(tokens));
      places_in_sequences(offsets.data(), 5, place.data());
      EXPECT_EQ((std::vector<int64_t>{place[0], place[59], place[60], place[61], place[static_cast<size_t>(tokens - 1)]}),
                (std::vector<int64_t>{0, 59, 0, 0, 29}));
      const auto weight = draw<T>(vocabulary * width, 1), positions = draw<T>(most * width, 2), grad = draw<T>(tokens * width, 4);
      const double scale = std::sqrt(7.0);
      for_each_simd_target([&] {
        const auto got = same_for_all_workers([&](Parallel& parallel) {
          std::vector<T> out(static_cast<size_t>(tokens * width)), sums(static_cast<size_t>((vocabulary + 2) * width), T(7));
          embedding_forward(
              Embedding<T>{tokens, width, token.data(), place.data(), weight.data(), positions.data(), scale, dropout, out.data()},
              parallel);
          embedding_sums(EmbeddingSums<T>{tokens, width, vocabulary + 2, token.data(), grad.data(), scale, dropout, sums.data()}, parallel);
          return joined({out, sums});
        });
        const auto middle = got.begin() + tokens * width;
        expect_close<T>({got.begin(), middle}, reference::embedding(exact(weight), exact(positions), width, token, place, scale, dropout),
                        2, "out");
        expect_close<T>({middle, got.end()}, reference::embedding_sums(exact(grad), width, token, vocabulary + 2, scale, dropout), tokens,
                        "sums");
      });
    }
}
TEST(EmbeddingKernel, Float32) { embedding_matches<float>(); }
TEST(EmbeddingKernel, Float64) { embedding_matches<double>(); }

// ---- residuals and norms

template <typename T> void residual_norm_matches() {
  for (const int64_t rows : {1, 7, 70})
    for (const int64_t width : {3, 16, 33, 200})
      for (const Dropout& dropout : {kNone, kSome})
        for (const bool has_grad_y : {false, true}) {
          const int64_t n = rows * width;
          const auto residual = draw<T>(n, 1), x = draw<T>(n, 2), weight = draw<T>(width, 3), bias = draw<T>(width, 4),
                     grad_z = draw<T>(n, 5), grad_y = draw<T>(n, 6);
          const double eps = 1e-2;
          const auto expected = reference::residual_norm(exact(residual), exact(x), width, exact(weight), exact(bias), eps, dropout,
                                                         exact(grad_z), has_grad_y ? exact(grad_y) : Numbers());
          const ResidualNormShape shape{rows, width, eps, dropout};
          for_each_simd_target([&] {
            const auto size = static_cast<size_t>(n), w = static_cast<size_t>(width), r = static_cast<size_t>(rows);
            const auto got = same_for_all_workers([&](Parallel& parallel) {
              std::vector<T> y(size), z(size), mean(r), rstd(r), dr(size), dx(size), dw(w), db(w);
              residual_norm_forward(shape,
                                    ResidualNormForward<T>{residual.data(), x.data(), weight.data(), bias.data(), y.data(), z.data(),
                                                           mean.data(), rstd.data()},
                                    parallel);
              residual_norm_backward(
                  shape,
                  ResidualNormBackward<T>{grad_z.data(), y.data(), weight.data(), mean.data(), rstd.data(),
                                          has_grad_y ? grad_y.data() : nullptr, dr.data(), dx.data(), dw.data(), db.data()},
                  parallel);
              return joined({y, z, dr, dx, dw, db});
            });
            auto at = got.begin();
            const auto next = [&](size_t count) {
              const std::vector<T> part(at, at + static_cast<int64_t>(count));
              at += static_cast<int64_t>(count);
              return part;
            };
            // A row that happens to vary little divides rounding by a small deviation, at least 0.1 here.
            expect_close(next(size), expected.y, 2, "y");
            expect_close(next(size), expected.z, 10 * width, "z");
            expect_close(next(size), expected.grad_residual, 100 * width, "grad_residual");
            expect_close(next(size), expected.grad_x, 100 * width, "grad_x");
            expect_close(next(w), expected.grad_weight, 10 * (rows + width), "grad_weight");
            expect_close(next(w), expected.grad_bias, rows, "grad_bias");
          });
        }
}
TEST(ResidualNormKernel, Float32) { residual_norm_matches<float>(); }
TEST(ResidualNormKernel, Float64) { residual_norm_matches<double>(); }

template <typename T> void rms_norm_matches() {
  for (const int64_t width : {1, 5, 16, 67}) {
    const int64_t rows = 40;
    const auto x = draw<T>(rows * width, 1), weight = draw<T>(width, 2), grad = draw<T>(rows * width, 3);
    const auto expected = reference::rms_norm(exact(x), width, exact(weight), 1e-2, exact(grad));
    for_each_simd_target([&] {
      const auto got = same_for_all_workers([&](Parallel& parallel) {
        std::vector<T> y(x.size()), dx(x.size()), dw(weight.size());
        rms_norm_forward(RmsNorm<T>{rows, width, 1e-2, x.data(), weight.data(), y.data(), nullptr, nullptr, nullptr}, parallel);
        rms_norm_backward(RmsNorm<T>{rows, width, 1e-2, x.data(), weight.data(), nullptr, grad.data(), dx.data(), dw.data()}, parallel);
        return joined({y, dx, dw});
      });
      const auto n = static_cast<int64_t>(x.size());
      expect_close<T>({got.begin(), got.begin() + n}, expected.y, width, "y");
      expect_close<T>({got.begin() + n, got.begin() + 2 * n}, expected.grad_x, 10 * width, "grad_x");
      expect_close<T>({got.begin() + 2 * n, got.end()}, expected.grad_weight, width + rows, "grad_weight");
    });
  }
}
TEST(RmsNormKernel, Float32) { rms_norm_matches<float>(); }
TEST(RmsNormKernel, Float64) { rms_norm_matches<double>(); }

// ---- hidden units of a feed-forward layer

template <typename T> void hidden_activation_match(Activation activation) {
  for (const int64_t units : {1, 7, 64, 130})
    for (const Dropout& dropout : {kNone, kSome}) {
      const int64_t rows = 37;
      const auto u = draw<T>(rows * units, 1, 2), grad = draw<T>(rows * units, 2);
      const auto expected = reference::hidden_activation(activation, exact(u), units, dropout, exact(grad));
      for_each_simd_target([&] {
        const auto got = same_for_all_workers([&](Parallel& parallel) {
          std::vector<T> hidden(u.size()), softmax = u, du = grad, again(u.size(), T(9)), bias(static_cast<size_t>(units));
          hidden_activation_forward(
              activation, HiddenActivationForward<T>{rows, units, softmax.data(), hidden.data(), softmax.data(), dropout}, parallel);
          const std::vector<T>& kept = activation == Activation::relu ? hidden : softmax;  // of the others softmax still holds u
          hidden_activation_backward(
              activation, HiddenActivationBackward<T>{rows, units, kept.data(), du.data(), du.data(), again.data(), bias.data(), dropout},
              parallel);
          EXPECT_EQ(again, hidden);
          // In place, where nothing is kept.
          std::vector<T> place = u;
          hidden_activation_forward(activation, HiddenActivationForward<T>{rows, units, place.data(), place.data(), place.data(), dropout},
                                    parallel);
          EXPECT_EQ(place, hidden);
          return joined({hidden, du, bias});
        });
        const auto n = static_cast<int64_t>(u.size());
        expect_close<T>({got.begin(), got.begin() + n}, expected.hidden, units + 16, "hidden");
        expect_close<T>({got.begin() + n, got.begin() + 2 * n}, expected.du, units + 16, "du");
        expect_close<T>({got.begin() + 2 * n, got.end()}, expected.grad_bias, rows + units + 16, "grad_bias");
      });
    }
}
TEST(HiddenActivationKernel, EveryActivation) {
  for (size_t i = 0; i < kActivationNames.size(); ++i) {
    SCOPED_TRACE(kActivationNames[i]);
    hidden_activation_match<float>(static_cast<Activation>(i));
    hidden_activation_match<double>(static_cast<Activation>(i));
  }
}

// ---- loss

template <typename T> void smoothed_matches() {
  for (const int64_t classes : {1, 2, 10, 37, 3000})
    for (const double smoothing : {0.0, 0.1})
      for (const double spread : {1.0, 30.0}) {
        const int64_t rows = 9;
        const auto x = draw<T>(rows * classes, 1, spread);
        const auto labels = draw_integers(rows, classes, 2);
        for_each_simd_target([&] {
          Numbers losses(9), nll(9);
          std::vector<uint8_t> right(9);
          const auto got = same_for_all_workers([&](Parallel& parallel) {
            std::vector<T> grad = x, plain = x;
            smoothed_cross_entropy(SmoothedCrossEntropy<T>{rows, classes, grad.data(), labels.data(), smoothing, true, 0.25, losses.data(),
                                                           nll.data(), right.data()},
                                   parallel);
            Numbers again(9), nll_again(9);
            smoothed_cross_entropy(SmoothedCrossEntropy<T>{rows, classes, plain.data(), labels.data(), smoothing, false, 1, again.data(),
                                                           nll_again.data(), right.data()},
                                   parallel);
            EXPECT_EQ(plain, x) << "logits change where no gradient is asked for";
            EXPECT_EQ(again, losses);
            return grad;
          });
          Numbers grads;
          for (int64_t i = 0; i < rows; ++i) {
            const auto at = static_cast<size_t>(i);
            const Numbers row(x.begin() + i * classes, x.begin() + (i + 1) * classes);
            Numbers grad, plain;
            const double largest = *std::max_element(row.begin(), row.end());
            const double expected =
                reference::cross_entropy_row(CrossEntropy::softmax, row, reference::smoothed_target(labels[at], classes, smoothing), grad);
            const double expected_nll =
                reference::cross_entropy_row(CrossEntropy::softmax, row, reference::smoothed_target(labels[at], classes, 0), plain);
            // The sum of exponentials has a relative error of some eps; the logits are summed in stretches of 1024.
            const double tolerance = std::numeric_limits<T>::epsilon() * (16 + 4 * spread * (classes > 1000 ? 40 : 4));
            EXPECT_NEAR(losses[at], expected, tolerance);
            EXPECT_NEAR(nll[at], expected_nll, tolerance);
            EXPECT_EQ(right[at], row[static_cast<size_t>(labels[at])] == largest);
            for (const double g : grad) grads.push_back(g / 4);
          }
          expect_close<T>(got, grads, 32, "gradient");
        });
      }
}
TEST(SmoothedCrossEntropyKernel, Float32) { smoothed_matches<float>(); }
TEST(SmoothedCrossEntropyKernel, Float64) { smoothed_matches<double>(); }

// ---- attention by projection

TEST(SparseWeights, AreThoseOfSmallCases) {
  // sparsemax of (1, 0): both in the support, tau = 0: (1, 0) at the border; of (0.5, 0): (0.75, 0.25)
  EXPECT_NEAR(reference::sparse_weights(SparseRule::sparsemax, {0.5, 0})[0], 0.75, 1e-12);
  EXPECT_NEAR(reference::sparse_weights(SparseRule::sparsemax, {3, 0})[1], 0, 1e-12);
  // entmax15 of equal scores is uniform; of (x, 0) with w = ((x/2 - tau)^2, tau^2)
  EXPECT_NEAR(reference::sparse_weights(SparseRule::entmax15, {2, 2, 2, 2})[3], 0.25, 1e-12);
  const Numbers w = reference::sparse_weights(SparseRule::entmax15, {1, 0});
  EXPECT_NEAR(w[0] + w[1], 1, 1e-12);
  EXPECT_NEAR(std::sqrt(w[0]) - std::sqrt(w[1]), 0.5, 1e-12);
}

template <typename T> void sparse_attention_matches() {
  for (const SparseRule rule : {SparseRule::sparsemax, SparseRule::entmax15})
    for (const bool causal : {false, true})
      for (const auto& lengths : {std::pair<int64_t, int64_t>{1, 1}, {5, 5}, {3, 40}, {40, 3}, {33, 70}})
        for (const double spread : {0.2, 1.0, 4.0}) {
          const int64_t H = 2, lq = lengths.first, lk = lengths.second, D = 13;
          const auto q = draw<T>(H * lq * D, 1, spread), k = draw<T>(H * lk * D, 2), v = draw<T>(H * lk * D, 3),
                     grad = draw<T>(H * lq * D, 4);
          const double scale = 1 / std::sqrt(13.0);
          const auto expected = reference::sparse_attention(rule, H, lq, lk, D, causal, scale, exact(q), exact(k), exact(v), exact(grad));
          AttentionShape shape{1, H, H, lq, lk, D};
          shape.causal = causal;
          AttentionRule options;
          options.scale = scale;
          for_each_simd_target([&] {
            const auto got = same_for_all_workers([&](Parallel& parallel) {
              std::vector<T> out(q.size()), dq(q.size(), T(5)), dk(k.size(), T(5)), dv(k.size(), T(5));
              const auto view = [&](auto& array, int64_t length) {
                return View<std::remove_reference_t<decltype(array[0])>>{array.data(), 0, length * D, D};
              };
              AttentionForward<T> forward;
              forward.q = view(q, lq), forward.k = view(k, lk), forward.v = view(v, lk), forward.out = view(out, lq);
              sparse_attention_forward(rule, shape, options, forward, parallel);
              AttentionBackward<T> backward;
              backward.q = view(q, lq), backward.k = view(k, lk), backward.v = view(v, lk), backward.grad_out = view(grad, lq);
              backward.dq = view(dq, lq), backward.dk = view(dk, lk), backward.dv = view(dv, lk);
              sparse_attention_backward(rule, shape, options, backward, parallel);
              return joined({out, dq, dk, dv});
            });
            const auto nq = static_cast<int64_t>(q.size()), nk = static_cast<int64_t>(k.size());
            const auto part = [&](int64_t first, int64_t count) {
              return std::vector<T>(got.begin() + first, got.begin() + first + count);
            };
            // A key may be on either side of the threshold: its weight is of the size of the rounding there. Its slope is not: sparsemax's
            // gradient jumps by up to the gradient itself, divided by the support. No score of these inputs is that close.
            const int64_t terms = static_cast<int64_t>(200 * std::max(1.0, spread));
            expect_close(part(0, nq), expected.out, terms, "out");
            expect_close(part(nq, nq), expected.dq, terms + lk, "dq");
            expect_close(part(2 * nq, nk), expected.dk, terms + lq, "dk");
            expect_close(part(2 * nq + nk, nk), expected.dv, terms + lq, "dv");
          });
        }
}
TEST(SparseAttentionKernel, Float32) { sparse_attention_matches<float>(); }
TEST(SparseAttentionKernel, Float64) { sparse_attention_matches<double>(); }

TEST(SparseAttentionKernel, JaggedBatchesAreTheSequencesOneByOne) {
  const int64_t H = 2, D = 5, Lq = 9, Lk = 12;
  const std::vector<int64_t> q_offsets = {0, 4, 4, 9}, k_offsets = {0, 3, 5, 12};
  const auto q = draw<double>(Lq * H * D, 1), k = draw<double>(Lk * H * D, 2), v = draw<double>(Lk * H * D, 3);
  for (const double dropout : {0.0, 0.4}) {
    AttentionRule options;
    options.dropout = dropout, options.seed = 77;
    AttentionShape shape{1, H, H, Lq, Lk, D};
    shape.q_offsets = q_offsets.data(), shape.k_offsets = k_offsets.data(), shape.sequences = 3, shape.causal = true;
    Numbers out(q.size());
    AttentionForward<double> forward;
    forward.q = {q.data(), 0, D, H * D}, forward.k = {k.data(), 0, D, H * D}, forward.v = {v.data(), 0, D, H * D},
    forward.out = {out.data(), 0, D, H * D};
    Serial serial;
    sparse_attention_forward(SparseRule::entmax15, shape, options, forward, serial);
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t i = q_offsets[static_cast<size_t>(s)]; i < q_offsets[static_cast<size_t>(s + 1)]; ++i) {
          const int64_t lk = k_offsets[static_cast<size_t>(s + 1)] - k_offsets[static_cast<size_t>(s)],
                        lq = q_offsets[static_cast<size_t>(s + 1)] - q_offsets[static_cast<size_t>(s)];
          const int64_t n = std::clamp<int64_t>(i - q_offsets[static_cast<size_t>(s)] + 1 + lk - lq, 0, lk);
          Numbers x;
          for (int64_t j = 0; j < n; ++j) {
            double score = 0;
            for (int64_t d = 0; d < D; ++d)
              score += q[static_cast<size_t>((i * H + h) * D + d)] *
                       k[static_cast<size_t>(((k_offsets[static_cast<size_t>(s)] + j) * H + h) * D + d)];
            x.push_back(score);
          }
          const Numbers w = reference::sparse_weights(SparseRule::entmax15, x);
          for (int64_t d = 0; d < D; ++d) {
            double sum = 0;
            for (int64_t j = 0; j < n; ++j) {
              const bool kept = dropout == 0 || dropout_keeps(77, dropout_threshold(dropout), h, i, j);
              sum += (kept ? dropout_scale(dropout) : 0) * w[static_cast<size_t>(j)] *
                     v[static_cast<size_t>(((k_offsets[static_cast<size_t>(s)] + j) * H + h) * D + d)];
            }
            EXPECT_NEAR(out[static_cast<size_t>((i * H + h) * D + d)], sum, 1e-12);
          }
        }
  }
}

// ---- regulariser

TEST(RowRegulariserKernel, IsTheFormulaAndStaysFinite) {
  const auto of = [](const Numbers& w, double margin = kRegulariserMargin) {
    double sum = 0, log = 0;
    for (const double x : w) sum += x, log += x > 0 ? x * std::log(x) : 0;
    return row_regulariser(sum, log, static_cast<double>(w.size()), margin);
  };
  // The sum is 1 and all weight is on one key: nothing to say.
  EXPECT_EQ(of({1, 0, 0, 0}).value, 0);
  EXPECT_EQ(of({1}).value, 0);
  // Even weights: entropy log 4, above the margin 0.7 log 4; the sum is 2.
  EXPECT_NEAR(of({0.5, 0.5, 0.5, 0.5}).value, std::log(2.0) + 0.3 * std::log(4.0), 1e-12);
  EXPECT_NEAR(of({0.1, 0, 0, 0}).value, std::log(10.0), 1e-12);
  // Other margins: all of the entropy, a part of it, and none, also where log n is 0.
  EXPECT_NEAR(of({0.5, 0.5, 0.5, 0.5}, 0).value, std::log(2.0) + std::log(4.0), 1e-12);
  EXPECT_NEAR(of({0.5, 0.5, 0.5, 0.5}, 0.25).value, std::log(2.0) + 0.75 * std::log(4.0), 1e-12);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Numbers& w : {Numbers{0.5, 0.5, 0.5, 0.5}, Numbers{2}}) {
    const RowRegulariser sum_alone = of(w, infinity);
    EXPECT_NEAR(sum_alone.value, std::log(2.0), 1e-12);
    EXPECT_NEAR(sum_alone.slope_sum, 0.5, 1e-12);
    EXPECT_EQ(sum_alone.slope_log, 0);
  }
  // A row without weights, one that is almost without, and one that sees nothing.
  const RowRegulariser none = of({0, 0, 0});
  EXPECT_NEAR(none.value, std::log(1000.0) + 1, 1e-12);
  EXPECT_NEAR(none.slope_sum, -1000, 1e-9);
  EXPECT_EQ(none.slope_log, 0);
  EXPECT_EQ(row_regulariser(0, 0, 0).value, 0);
  // No jump at the floor.
  const double f = kRegulariserFloor;
  EXPECT_NEAR(row_regulariser(f * (1 - 1e-9), f * std::log(f / 9), 9).value, row_regulariser(f * (1 + 1e-9), f * std::log(f / 9), 9).value,
              1e-5);
  for (const auto& [sum, log] : {std::pair{0.7, -1.3}, {3.0, -2.0}, {1.2, 0.1}, {4e-4, -5e-3}}) {
    const double h = 1e-7, n = 5;
    const RowRegulariser r = row_regulariser(sum, log, n);
    EXPECT_NEAR(r.slope_sum, (row_regulariser(sum + h, log, n).value - row_regulariser(sum - h, log, n).value) / (2 * h), 1e-4);
    EXPECT_NEAR(r.slope_log, (row_regulariser(sum, log + h, n).value - row_regulariser(sum, log - h, n).value) / (2 * h), 1e-4);
  }
}

TEST(RowRegulariserKernel, SumsAreTheSameForAnyNumberOfWorkers) {
  const int64_t heads = 3, rows = 1000;
  auto sum = draw<float>(heads * rows, 1), log = draw<float>(heads * rows, 2);
  for (float& s : sum) s = std::abs(s);
  Numbers visible(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) visible[static_cast<size_t>(i)] = static_cast<double>(i % 30);
  double value = 0;
  const auto gradients = same_for_all_workers([&](Parallel& parallel) {
    std::vector<float> dsum(sum.size()), dlog(sum.size());
    value = regulariser_rows(RegulariserRows<float>{heads, rows, sum.data(), log.data(), visible.data(), 10, 0.5, dsum.data(), dlog.data()},
                             parallel);
    dsum.push_back(static_cast<float>(value));
    return joined({dsum, dlog});
  });
  double expected = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    const RowRegulariser r =
        row_regulariser(static_cast<double>(sum[i]), static_cast<double>(log[i]), visible[i % static_cast<size_t>(rows)], 0.5);
    expected += r.value / 10;
    ASSERT_EQ(gradients[i], static_cast<float>(r.slope_sum / 10));
  }
  EXPECT_NEAR(value, expected, 1e-9 * std::abs(expected));
}

}  // namespace
}  // namespace hinge::kernels::testing
