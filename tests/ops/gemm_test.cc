// Dense products: c = a^T b and the like, and weights that are kept packed. The fused layers made of them: dense_test.cc.
#include "ops/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "leaves.h"

namespace hinge {
namespace {

using at::Tensor;
using testing::leaf;

Tensor random(at::IntArrayRef sizes, int seed, at::ScalarType dtype = at::kFloat) { return leaf(sizes, seed, dtype).detach(); }

// Each of `depth` products and sums is rounded once.
void expect_product(const Tensor& got, const Tensor& left, const Tensor& right) {
  const Tensor l = left.to(at::kDouble), r = right.to(at::kDouble);
  const double eps = got.scalar_type() == at::kFloat ? 6e-8 : 1.2e-16;
  const Tensor allowed = at::mm(l.abs(), r.abs()) * (eps * static_cast<double>(l.size(1) + 2)) + 1e-30;
  EXPECT_LE(((got.to(at::kDouble) - at::mm(l, r)).abs() / allowed).max().item<double>(), 1);
}

Tensor linear_of(const Tensor& x, const Tensor& w) {
  const Tensor y = at::full({x.size(0), w.size(0)}, 1e6, x.options());
  linear_into(x, w, {}, {}, y);
  return y;
}

// How many are kept of `weights` that were used: none where oneDNN has no layout of its own.
size_t kept(size_t weights) {
  PackedWeights some;
  const PackedWeights::Use use(some);
  linear_of(random({3, 20}, 1), random({30, 20}, 2));
  return some.count() * weights;
}

// The last shape is one that transposed products cut into slices on Intel's AVX-512.
TEST(Gemm, EveryKindOfProduct) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& [R, N, K] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1}, {3, 70, 5}, {65, 17, 130}, {40, 33, 64}, {1003, 260, 256}}) {
      const Tensor x = random({R, K}, 1, dtype), w = random({N, K}, 2, dtype), dy = random({R, N}, 3, dtype);
      expect_product(linear_of(x, w), x, w.t());
      expect_product(product(dy, w), dy, w);
      expect_product(transposed_product(dy, x), dy.t(), x);
      const Tensor dw = at::full({N, K}, 1e6, x.options());
      transposed_product_into(dy, x, dw);
      expect_product(dw, dy.t(), x);
      const Tensor sum = transposed_product(dy, x);
      add_transposed_product(dy, x, sum);
      expect_product(sum, 2 * dy.t(), x);
    }
}

TEST(PackedWeights, GiveTheSameProductsForAnyNumberOfRows) {
  PackedWeights weights;
  const PackedWeights::Use use(weights);
  for (const auto& [N, K] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {70, 5}, {64, 128}, {129, 33}}) {
    const Tensor w = random({N, K}, 2), bias = random({N}, 3);
    for (const int64_t rows : {1, 4, 65}) {
      const Tensor x = random({rows, K}, 1), residual = random({rows, N}, 4), y = at::empty({rows, N});
      expect_product(linear_of(x, w), x, w.t());
      linear_into(x, w, bias, residual, y);
      // With the bias and the residual as two more products.
      const Tensor ones = at::ones({rows, 1}), all_left = at::cat({x, ones, at::eye(rows)}, 1);
      expect_product(y, all_left, at::cat({w.t(), bias.unsqueeze(0), residual}, 0));
    }
    EXPECT_EQ(weights.count(), kept(1)) << "those of the tensors that are gone go, too";
  }
}

TEST(PackedWeights, FollowAChangeOfTheWeights) {
  PackedWeights weights;
  const PackedWeights::Use use(weights);
  const Tensor x = random({3, 20}, 1), w = random({30, 20}, 2), other = random({30, 20}, 3);
  expect_product(linear_of(x, w), x, w.t());
  w.copy_(other);  // by ATen
  expect_product(linear_of(x, w), x, other.t());
  std::fill_n(w.data_ptr<float>(), w.numel(), 2.0f);  // behind its back
  w.unsafeGetTensorImpl()->bump_version();
  expect_product(linear_of(x, w), x, at::full_like(w, 2).t());
  EXPECT_EQ(weights.count(), kept(1));
}

// The memory of a tensor that is gone is often that of the next one.
TEST(PackedWeights, AreNotTakenForOthersAtTheSameAddress) {
  PackedWeights weights;
  const PackedWeights::Use use(weights);
  const Tensor x = random({3, 64}, 1);
  std::vector<float> memory(64 * 64);
  for (const float value : {1.0f, 2.0f}) {
    std::fill(memory.begin(), memory.end(), value);
    const Tensor w = at::from_blob(memory.data(), {64, 64}, at::kFloat);
    expect_product(linear_of(x, w), x, w.t());
  }
  // Parts of one storage are weights of their own.
  const Tensor both = random({2, 64, 64}, 5);
  for (const int64_t i : {0, 1}) expect_product(linear_of(x, both[i]), x, both[i].t());
}

TEST(PackedWeights, AreUsedByTheThreadsThatSaySo) {
  PackedWeights weights, inner;
  const Tensor x = random({3, 20}, 1), w = random({30, 20}, 2), v = random({30, 20}, 3);
  linear_of(x, w);
  EXPECT_EQ(weights.count(), 0u);
  const auto work = [&] {
    const PackedWeights::Use use(weights);
    for (int i = 0; i < 20; ++i) expect_product(linear_of(x, i % 2 ? w : v), x, (i % 2 ? w : v).t());
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  linear_of(x, w + 1);  // here nobody said so
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(weights.count(), kept(2));
  {
    const PackedWeights::Use outer(weights);
    {
      const PackedWeights::Use use(inner);
      linear_of(x, w + 1);
    }
    EXPECT_EQ(inner.count(), kept(1));
    linear_of(x, w);
  }
  EXPECT_EQ(weights.count(), kept(2));
}

}  // namespace
}  // namespace hinge
