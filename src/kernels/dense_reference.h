// The meaning of the kernels around the dense layers, in plain loops over float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/cross_entropy.h"

namespace hinge::kernels::reference {

struct LayerNorm {
  std::vector<double> y, grad_x, grad_weight, grad_bias;
};

// Contiguous rows of `width`; grad_skip may be empty.
inline LayerNorm layer_norm(const std::vector<double>& x, int64_t rows, int64_t width, const std::vector<double>& weight,
                            const std::vector<double>& bias, double eps, const std::vector<double>& grad_y,
                            const std::vector<double>& grad_skip) {
  LayerNorm r{std::vector<double>(x.size()), std::vector<double>(x.size()), std::vector<double>(weight.size()),
              std::vector<double>(weight.size())};
  const double n = static_cast<double>(width);
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = [&](int64_t j) { return static_cast<size_t>(i * width + j); };
    double mean = 0, variance = 0, mean_g = 0, mean_gx = 0;
    for (int64_t j = 0; j < width; ++j) mean += x[at(j)] / n;
    for (int64_t j = 0; j < width; ++j) variance += (x[at(j)] - mean) * (x[at(j)] - mean) / n;
    const double rstd = 1 / std::sqrt(variance + eps);
    for (int64_t j = 0; j < width; ++j) {
      const auto column = static_cast<size_t>(j);
      const double normal = (x[at(j)] - mean) * rstd, g = grad_y[at(j)] * weight[column];
      r.y[at(j)] = normal * weight[column] + bias[column];
      r.grad_weight[column] += grad_y[at(j)] * normal;
      r.grad_bias[column] += grad_y[at(j)];
      mean_g += g / n;
      mean_gx += g * normal / n;
    }
    for (int64_t j = 0; j < width; ++j) {
      const double normal = (x[at(j)] - mean) * rstd, g = grad_y[at(j)] * weight[static_cast<size_t>(j)];
      r.grad_x[at(j)] = rstd * (g - mean_g - normal * mean_gx) + (grad_skip.empty() ? 0 : grad_skip[at(j)]);
    }
  }
  return r;
}

// The loss of one row and its gradient.
inline double cross_entropy_row(CrossEntropy kind, const std::vector<double>& x, const std::vector<double>& target,
                                std::vector<double>& grad) {
  double largest = -INFINITY, sum = 0, loss = 0;
  for (double value : x) largest = std::max(largest, value);
  for (double value : x) sum += std::exp(value - largest);
  grad.resize(x.size());
  for (size_t c = 0; c < x.size(); ++c) {
    if (kind == CrossEntropy::softmax) {
      loss -= target[c] * (x[c] - largest - std::log(sum));
      grad[c] = std::exp(x[c] - largest) / sum - target[c];
    } else {
      loss += std::max(x[c], 0.0) - x[c] * target[c] + std::log1p(std::exp(-std::abs(x[c])));
      grad[c] = 1 / (1 + std::exp(-x[c])) - target[c];
    }
  }
  return loss;
}

}  // namespace hinge::kernels::reference
