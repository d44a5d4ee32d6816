// The meaning of the kernels around sequences, in plain loops over float64: dropout of rows, embeddings, residuals with norms, hidden units
// of a feed-forward layer, the smoothed cross-entropy, and attention by projection onto the simplex.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hinge/kernels/dropout.h"
#include "hinge/kernels/sparse_attention.h"
#include "kernels/dense_reference.h"
#include "kernels/reference.h"

namespace hinge::kernels::reference {

using Numbers = std::vector<double>;

// What element (row, column) of an array of rows is multiplied by.
inline double dropout_factor(const Dropout& dropout, int64_t row, int64_t column) {
  const uint32_t threshold = dropout_threshold(dropout.probability);
  return dropout_keeps(dropout.seed, threshold, 0, dropout.number(row), column) ? dropout_scale(dropout.probability) : 0;
}

inline Numbers dropped(const Dropout& dropout, const Numbers& x, int64_t width) {
  Numbers y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] * dropout_factor(dropout, static_cast<int64_t>(i) / width, static_cast<int64_t>(i) % width);
  return y;
}

inline Numbers embedding(const Numbers& weight, const Numbers& positions, int64_t width, const std::vector<int64_t>& token,
                         const std::vector<int64_t>& place, double scale, const Dropout& dropout) {
  Numbers out;
  for (size_t i = 0; i < token.size(); ++i)
    for (int64_t j = 0; j < width; ++j)
      out.push_back(scale * weight[static_cast<size_t>(token[i] * width + j)] + positions[static_cast<size_t>(place[i] * width + j)]);
  return dropped(dropout, out, width);
}

inline Numbers embedding_sums(const Numbers& grad, int64_t width, const std::vector<int64_t>& index, int64_t entries, double scale,
                              const Dropout& dropout) {
  Numbers sums(static_cast<size_t>(entries * width));
  const Numbers kept = dropped(dropout, grad, width);
  for (size_t i = 0; i < kept.size(); ++i) {
    const size_t row = i / static_cast<size_t>(width), column = i % static_cast<size_t>(width);
    sums[static_cast<size_t>(index[row] * width) + column] += scale * kept[i];
  }
  return sums;
}

struct ResidualNorm {
  Numbers y, z, grad_residual, grad_x, grad_weight, grad_bias;
};
inline ResidualNorm residual_norm(const Numbers& residual, const Numbers& x, int64_t width, const Numbers& weight, const Numbers& bias,
                                  double eps, const Dropout& dropout, const Numbers& grad_z, const Numbers& grad_y) {
  ResidualNorm r;
  r.y = dropped(dropout, x, width);
  for (size_t i = 0; i < x.size(); ++i) r.y[i] += residual[i];
  const LayerNorm norm = layer_norm(r.y, static_cast<int64_t>(x.size()) / width, width, weight, bias, eps, grad_z, grad_y);
  r.z = norm.y, r.grad_residual = norm.grad_x, r.grad_weight = norm.grad_weight, r.grad_bias = norm.grad_bias;
  r.grad_x = dropped(dropout, norm.grad_x, width);
  return r;
}

struct RmsNorm {
  Numbers y, grad_x, grad_weight;
};
inline RmsNorm rms_norm(const Numbers& x, int64_t width, const Numbers& weight, double eps, const Numbers& grad_y) {
  RmsNorm r{Numbers(x.size()), Numbers(x.size()), Numbers(weight.size())};
  const auto w = static_cast<size_t>(width);
  for (size_t row = 0; row < x.size(); row += w) {
    double squares = 0, mean = 0;
    for (size_t j = 0; j < w; ++j) squares += x[row + j] * x[row + j];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t j = 0; j < w; ++j) {
      r.y[row + j] = x[row + j] * inverse * weight[j];
      r.grad_weight[j] += grad_y[row + j] * x[row + j] * inverse;
      mean += grad_y[row + j] * weight[j] * x[row + j] * inverse / static_cast<double>(width);
    }
    for (size_t j = 0; j < w; ++j) r.grad_x[row + j] = inverse * (grad_y[row + j] * weight[j] - x[row + j] * inverse * mean);
  }
  return r;
}

struct HiddenActivation {
  Numbers activated, hidden, du, grad_bias;
};
inline HiddenActivation hidden_activation(Activation activation, const Numbers& u, int64_t units, const Dropout& dropout,
                                          const Numbers& grad) {
  HiddenActivation r{Numbers(u.size()), {}, Numbers(u.size()), Numbers(static_cast<size_t>(units))};
  const auto w = static_cast<size_t>(units);
  const Numbers g = dropped(dropout, grad, units);
  for (size_t row = 0; row < u.size(); row += w) {
    const double largest = *std::max_element(u.begin() + static_cast<int64_t>(row), u.begin() + static_cast<int64_t>(row + w));
    double sum = 0, mean = 0;
    for (size_t j = row; j < row + w; ++j) sum += std::exp(u[j] - largest);
    for (size_t j = row; j < row + w; ++j) {
      r.activated[j] = activation == Activation::softmax ? std::exp(u[j] - largest) / sum : value(activation, u[j]);
      mean += r.activated[j] * g[j];
    }
    for (size_t j = row; j < row + w; ++j) {
      r.du[j] = activation == Activation::softmax ? r.activated[j] * (g[j] - mean) : g[j] * slope(activation, u[j]);
      r.grad_bias[j - row] += r.du[j];
    }
  }
  r.hidden = dropped(dropout, r.activated, units);
  return r;
}

// The target of a row that is smoothed: what cross_entropy_row takes.
inline Numbers smoothed_target(int64_t label, int64_t classes, double smoothing) {
  Numbers target(static_cast<size_t>(classes), smoothing / static_cast<double>(classes));
  target[static_cast<size_t>(label)] += 1 - smoothing;
  return target;
}

// The weights of a row of scores: tau by halving an interval, not by sorting as the kernel does.
inline Numbers sparse_weights(SparseRule rule, Numbers x) {
  if (x.empty()) return x;
  if (rule == SparseRule::entmax15)
    for (double& score : x) score /= 2;
  const double largest = *std::max_element(x.begin(), x.end());
  const auto weight = [&](double score, double tau) {
    const double above = std::max(score - tau, 0.0);
    return rule == SparseRule::sparsemax ? above : above * above;
  };
  double low = largest - 1, high = largest;
  for (int step = 0; step < 200; ++step) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const double score : x) sum += weight(score, middle);
    (sum > 1 ? low : high) = middle;
  }
  for (double& score : x) score = weight(score, low);
  return x;
}

// Attention with such weights; q, k, v and the results are contiguous [H, L, D] of one sequence.
struct SparseAttention {
  Numbers out, dq, dk, dv;
};
inline SparseAttention sparse_attention(SparseRule rule, int64_t heads, int64_t lq, int64_t lk, int64_t D, bool causal, double scale,
                                        const Numbers& q, const Numbers& k, const Numbers& v, const Numbers& grad) {
  SparseAttention r{Numbers(q.size()), Numbers(q.size()), Numbers(k.size()), Numbers(k.size())};
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < lq; ++i) {
      const int64_t n = causal ? std::clamp<int64_t>(i + 1 + lk - lq, 0, lk) : lk;
      const auto row = static_cast<size_t>((h * lq + i) * D);
      const auto key = [&](int64_t j) { return static_cast<size_t>((h * lk + j) * D); };
      const auto width = static_cast<size_t>(D);
      Numbers x, g, root;
      for (int64_t j = 0; j < n; ++j) {
        double score = 0, along = 0;
        for (size_t d = 0; d < width; ++d) score += q[row + d] * k[key(j) + d], along += grad[row + d] * v[key(j) + d];
        x.push_back(scale * score), g.push_back(along);
      }
      const Numbers w = sparse_weights(rule, x);
      double sum = 0, roots = 0;
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<size_t>(j);
        root.push_back(rule == SparseRule::entmax15 ? std::sqrt(w[at]) : w[at] > 0 ? 1 : 0);
        sum += root[at] * g[at], roots += root[at];
      }
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<size_t>(j);
        const double dx = scale * root[at] * (g[at] - sum / roots);
        for (size_t d = 0; d < width; ++d) {
          r.out[row + d] += w[at] * v[key(j) + d];
          r.dq[row + d] += dx * k[key(j) + d];
          r.dk[key(j) + d] += dx * q[row + d];
          r.dv[key(j) + d] += w[at] * grad[row + d];
        }
      }
    }
  return r;
}

}  // namespace hinge::kernels::reference
