// Inputs of the ops' tests: leaves with gradients, and sums in which no gradient can hide.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "hinge/kernels/dropout.h"

namespace hinge::testing {

inline at::Tensor leaf(at::IntArrayRef sizes, int64_t seed, at::ScalarType dtype = at::kDouble, double spread = 1) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return (at::randn(sizes, generator, at::kDouble) * spread).to(dtype).requires_grad_(true);
}

// A sum with weights of its own for every element.
inline at::Tensor weighted(const at::Tensor& y) {
  return (y * at::linspace(-1, 1, y.numel(), y.options().requires_grad(false)).view_as(y)).sum();
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// What dropout multiplies rows by.
inline at::Tensor dropout_mask(int64_t rows, int64_t width, double dropout, uint64_t seed) {
  at::Tensor mask = at::empty({rows, width}, at::kDouble);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; ++j)
      mask[i][j] = kernels::dropout_keeps(seed, kernels::dropout_threshold(dropout), 0, i, j) ? kernels::dropout_scale(dropout) : 0.0;
  return mask;
}

}  // namespace hinge::testing
