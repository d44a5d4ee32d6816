// The kernels around the dense layers: against plain loops in float64 for odd sizes, on every SIMD target, and the same bits for any
// number of workers.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "bounds.h"
#include "hinge/kernels/adam.h"
#include "hinge/kernels/column_sums.h"
#include "hinge/kernels/cross_entropy.h"
#include "hinge/kernels/layer_norm.h"
#include "kernels/dense_reference.h"
#include "problem.h"
#include "threads.h"

namespace hinge::kernels::testing {
namespace {

template <typename T> std::vector<T> normal(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> draw;
  std::vector<T> x(n);
  for (T& value : x) value = static_cast<T>(draw(generator));
  return x;
}

template <typename T> std::vector<double> wide(const std::vector<T>& x) { return {x.begin(), x.end()}; }

template <typename T> double largest_error(const std::vector<T>& got, const std::vector<double>& expected) {
  double worst = 0, size = 1;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
    size = std::max(size, std::abs(expected[i]));
  }
  return worst / size;
}

// Chains of at most `terms` roundings.
template <typename T> double bound(int64_t terms) { return static_cast<double>(terms + 16) * std::numeric_limits<T>::epsilon(); }

template <typename T> void layer_norm_matches() {
  for (const int64_t rows : {1, 7, 70})
    for (const int64_t width : {1, 2, 7, 16, 33}) {
      const auto n = static_cast<size_t>(rows * width), w = static_cast<size_t>(width);
      const auto x = normal<T>(n, 1), weight = normal<T>(w, 2), bias = normal<T>(w, 3), grad = normal<T>(n, 4), skip = normal<T>(n, 5);
      const double eps = width == 1 ? 1 : 1e-6;
      const auto expected = reference::layer_norm(wide(x), rows, width, wide(weight), wide(bias), eps, wide(grad), wide(skip));
      for_each_simd_target([&] {
        std::vector<T> first;
        for (const int workers : {1, 3}) {
          Threads threads(workers);
          std::vector<T> y(n), mean(static_cast<size_t>(rows)), rstd(mean.size()), dx(n), dw(w), db(w);
          layer_norm_forward(
              {rows, 1, width, eps},
              LayerNormForward<T>{{x.data(), width}, weight.data(), bias.data(), {y.data(), width}, mean.data(), rstd.data()}, threads);
          layer_norm_backward({rows, 1, width, eps},
                              LayerNormBackward<T>{{grad.data(), width},
                                                   {x.data(), width},
                                                   weight.data(),
                                                   mean.data(),
                                                   rstd.data(),
                                                   {skip.data(), width},
                                                   {dx.data(), width},
                                                   dw.data(),
                                                   db.data()},
                              threads);
          // A row of two that nearly coincide divides rounding by a small deviation.
          const double factor = width == 2 ? 1000 : 4;
          EXPECT_LT(largest_error(y, expected.y), factor * bound<T>(width)) << rows << " x " << width;
          EXPECT_LT(largest_error(dx, expected.grad_x), factor * bound<T>(width)) << rows << " x " << width;
          EXPECT_LT(largest_error(dw, expected.grad_weight), factor * bound<T>(rows + width));
          EXPECT_LT(largest_error(db, expected.grad_bias), factor * bound<T>(rows));
          std::vector<T> all = y;
          for (const auto* part : {&dx, &dw, &db}) all.insert(all.end(), part->begin(), part->end());
          if (first.empty()) first = all;
          EXPECT_EQ(all, first) << "results depend on the number of workers";
        }
      });
    }
}
TEST(LayerNorm, Float32) { layer_norm_matches<float>(); }
TEST(LayerNorm, Float64) { layer_norm_matches<double>(); }

// Groups and strides: each head of a packed row by itself, in place, and nothing else touched.
TEST(LayerNorm, GroupsInPlace) {
  const int64_t rows = 5, groups = 3, width = 6, stride = 40;
  const auto weight = normal<float>(6, 2), bias = normal<float>(6, 3), before = normal<float>(static_cast<size_t>(rows * stride), 1);
  auto x = before;
  Serial serial;
  layer_norm_forward({rows, groups, width, 1e-6},
                     LayerNormForward<float>{{x.data(), stride}, weight.data(), bias.data(), {x.data(), stride}, nullptr, nullptr}, serial);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < stride; ++j) {
      const auto at = static_cast<size_t>(row * stride + j);
      if (j >= groups * width) {
        ASSERT_EQ(x[at], before[at]);
        continue;
      }
      const auto begin = before.begin() + row * stride + j / width * width;
      const std::vector<double> group(begin, begin + width);
      const auto expected = reference::layer_norm(group, 1, width, wide(weight), wide(bias), 1e-6, group, {});
      ASSERT_NEAR(x[at], expected.y[static_cast<size_t>(j % width)], 1e-5);
    }
}

TEST(ColumnSums, OfRowsThatLieApart) {
  const int64_t rows = 37, width = 19, stride = 23;
  const auto x = normal<float>(static_cast<size_t>(rows * stride), 1);
  std::vector<double> expected(width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; ++j) expected[static_cast<size_t>(j)] += x[static_cast<size_t>(i * stride + j)];
  for_each_simd_target([&] {
    std::vector<float> sums(width), serially(width);
    Threads threads(3);
    column_sums(x.data(), rows, stride, width, sums.data(), threads);
    EXPECT_LT(largest_error(sums, expected), bound<float>(rows));
    Serial serial;
    column_sums(x.data(), rows, stride, width, serially.data(), serial);
    EXPECT_EQ(sums, serially);
  });
}

template <typename T> void adam_matches() {
  const std::vector<size_t> sizes = {1, 7, 40000};
  std::vector<std::vector<T>> value, grad, m, v;
  for (size_t size : sizes) {
    value.push_back(normal<T>(size, 1)), grad.push_back(normal<T>(size, 2)), m.push_back(normal<T>(size, 3)),
        v.push_back(normal<T>(size, 4));
    for (T& x : v.back()) x = x * x;
  }
  const AdamStep step{1e-2, 0.9, 0.95, 1e-8, 1 - 0.9 * 0.9, 1 - 0.95 * 0.95, 0.5};
  for_each_simd_target([&] {
    auto value1 = value, m1 = m, v1 = v;
    std::vector<AdamTensor<T>> tensors;
    for (size_t i = 0; i < sizes.size(); ++i)
      tensors.push_back({value1[i].data(), grad[i].data(), m1[i].data(), v1[i].data(), static_cast<int64_t>(sizes[i]), i == 1 ? 0.0 : 0.1});
    Threads threads(3);
    double squares = 0;
    for (const auto& g : grad)
      for (T x : g) squares += static_cast<double>(x) * x;
    EXPECT_NEAR(squared_norm(tensors, threads) / squares, 1, 1e-6);
    adam_step(tensors, step, threads);
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::vector<double> expected;
      for (size_t j = 0; j < sizes[i]; ++j) {
        const double g = 0.5 * grad[i][j], mean = 0.9 * m[i][j] + 0.1 * g, square = 0.95 * v[i][j] + 0.05 * g * g;
        expected.push_back(value[i][j] * (i == 1 ? 1 : 0.9) - 1e-2 * (mean / step.bias1) / (std::sqrt(square / step.bias2) + 1e-8));
      }
      EXPECT_LT(largest_error(value1[i], expected), bound<T>(8));
    }
  });
}
TEST(Adam, Float32) { adam_matches<float>(); }
TEST(Adam, Float64) { adam_matches<double>(); }

TEST(CrossEntropyKernel, MatchesPlainLoops) {
  for (const CrossEntropy kind : {CrossEntropy::softmax, CrossEntropy::sigmoid})
    for (const int64_t classes : {1, 2, 10, 37})
      for (const float scale : {1.0F, 30.0F}) {
        const int64_t rows = 5;
        auto x = normal<float>(static_cast<size_t>(rows * classes), 1);
        for (float& value : x) value *= scale;
        std::vector<int64_t> labels, second;
        for (int64_t i = 0; i < rows; ++i) labels.push_back(i % classes), second.push_back(i * 7 % classes);
        for_each_simd_target([&] {
          std::vector<float> losses(rows), grad(x.size());
          Threads threads(2);
          cross_entropy(kind,
                        CrossEntropyRows<float>{rows, classes, x.data(), labels.data(), second.data(), 0.3, losses.data(), grad.data()},
                        threads);
          for (int64_t i = 0; i < rows; ++i) {
            std::vector<double> target(static_cast<size_t>(classes)), expected;
            target[static_cast<size_t>(labels[static_cast<size_t>(i)])] += 0.3;
            target[static_cast<size_t>(second[static_cast<size_t>(i)])] += 0.7;
            const std::vector<double> row(x.begin() + i * classes, x.begin() + (i + 1) * classes);
            const double loss = reference::cross_entropy_row(kind, row, target, expected);
            double size = 1;  // what the loss is the difference of
            for (double value : row) size += std::abs(value);
            EXPECT_NEAR(losses[static_cast<size_t>(i)], loss, size * 1e-6);
            EXPECT_LT(largest_error(std::vector<float>(grad.begin() + i * classes, grad.begin() + (i + 1) * classes), expected), 4e-6);
          }
        });
      }
}

}  // namespace
}  // namespace hinge::kernels::testing
