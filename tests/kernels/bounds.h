// How far a correct kernel in type T may be from the exact result: first-order rounding error analysis, element by element.
//
// u is the unit roundoff of T. A sum of n products in any order, with or without fused multiply-adds, is within
// gamma(n) = n u / (1 - n u) of the exact one, relative to the sum of the absolute products (Higham, Accuracy and Stability of
// Numerical Algorithms, 3.1). Below, e_y is the bound of the error of y:
//
//   e_x    = gamma(D + 4) (|scale| sum_d |q_d k_d| + |mask| + |b| + |log N|)     4 more: scale, shift, mask and their own rounding
//   e_h    = e_x max |h'| near x + value_error(h, x)                    "near": x +- e_x, by its ends and the curvature
//                                                                       + the reference's own, 4 eps_wide |x|
//   e_h'   = change of h' within x +- e_x + slope_error(h, x)           1 where a kink is that near
//   e_w    = |c| (e_h + 4 u |h|)
//   e_out  = sum_j m_j e_w_j |v_j| + gamma(n + 4) sum_j m_j |w_j v_j|
//   e_G    = m gamma(D + 2) sum_d |grad_out_d v_d| + 2 u |grad_sum| + |grad_log| e_log|w|
//   e_dx   = |c| ((|h'| + e_h') e_G + e_h' |G|) + 4 u |dx|
// and the sums dq, dk, dv, dgain, dbias, dalpha carry such errors on like out. In the linear-time order of identity the partial sums
// do not see that q.k cancels: there |x| is replaced by its absolute sum in the gamma terms, and gamma also counts D.
//
// Softmax: with y = x - max x, a weight has the relative error  e_x_j + max_l e_x_l + u (|y| + |max x| + |lse| + n + 8).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "problem.h"

namespace hinge::kernels::testing {

// What is promised of the vector functions. The value is as good as if both x and h(x) had been wrong by 4 eps, and the slope is within
// 4 eps of its own size or of 1. Close to the smallest normal number digits may be lost.
template <typename T> double value_error(double x, double value, double slope) {
  return 4 * std::numeric_limits<T>::epsilon() * (std::abs(value) + std::abs(x * slope)) +
         16 * static_cast<double>(std::numeric_limits<T>::min()) * (1 + std::abs(x));
}
template <typename T> double slope_error(double slope) { return 4 * std::numeric_limits<T>::epsilon() * std::max(1.0, std::abs(slope)); }

// Largest |h''| away from kinks (rounded up).
inline double curvature(Activation h) {
  switch (h) {
    case Activation::relu:
    case Activation::relu6:
    case Activation::identity: return 0;
    case Activation::relu2: return 2;
    default: return 1;
  }
}

// The bounds of everything that run_fast gives for a problem of type T.
template <typename T> Results<double> error_bounds(const Problem<T>& problem) {
  const double u = std::numeric_limits<T>::epsilon() / 2, tiny = 4 * static_cast<double>(std::numeric_limits<T>::min());
  const double wide =
      4 * (sizeof(T) == 4 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<long double>::epsilon()));
  const double largest_log = -std::log(static_cast<double>(std::numeric_limits<T>::denorm_min()));
  const auto gamma = [u](int64_t n) { return static_cast<double>(n) * u / (1 - static_cast<double>(n) * u); };

  const Problem<double> p = problem.template as<double>();
  const AttentionShape& s = p.shape;
  const AttentionRule& rule = p.rule;
  const Activation h = rule.h;
  const bool softmax = p.softmax(), identity = h == Activation::identity;
  const double scale = std::abs(rule.scale);
  const int64_t group = s.Hq / s.Hkv, D = s.D, Dv = s.value_width();

  Results<double> e;
  e.out.assign(static_cast<size_t>(s.B * s.Hq * s.Lq * Dv), tiny), e.dq.assign(static_cast<size_t>(s.B * s.Hq * s.Lq * D), tiny);
  e.dk.assign(static_cast<size_t>(s.B * s.Hkv * s.Lk * D), tiny), e.dv.assign(static_cast<size_t>(s.B * s.Hkv * s.Lk * Dv), tiny);
  e.weight_sum.assign(p.row_count(), tiny), e.weight_log = e.zero_share = e.lse = e.weight_sum;
  e.dgain.assign(static_cast<size_t>(s.Hq), tiny), e.dbias = e.dalpha = e.dgain;
  e.dmask.assign(problem.dmask_size(), tiny);
  // Elements of the mask's gradient are sums of so many at most.
  const int64_t summands = e.dmask.empty() ? 0 : s.B * s.Hq * s.Lq * s.Lk / static_cast<int64_t>(e.dmask.size());

  reference::for_each_row(s, [&](const Sequence& seq, int64_t head, int64_t i) {
    const int64_t kv_head = head / group, row_at = seq.q_begin + i;
    const auto row = reference::row_of_weights<double>(s, rule, p.q.cview(), p.k.cview(), seq, head, i);
    if (row.n == 0) return;
    const auto n = static_cast<size_t>(row.n);
    const auto stat = static_cast<size_t>((seq.b * s.Hq + head) * s.Lq + row_at), h_at = static_cast<size_t>(head);
    const double* q = row_of(p.q.cview(), seq.b, head, row_at);
    const double* grad_out = row_of(p.grad_out.cview(), seq.b, head, row_at);
    const auto key = [&](size_t j) { return row_of(p.k.cview(), seq.b, kv_head, seq.k_begin + row.key[j]); };
    const auto val = [&](size_t j) { return row_of(p.v.cview(), seq.b, kv_head, seq.k_begin + row.key[j]); };
    const double c = std::abs(row.c), log_c = c == 0 ? 0 : std::abs(std::log(c));
    const double shift = softmax ? 0 : std::abs(rule.bias ? rule.bias[head] : 0) + (rule.bias_log_n ? std::abs(row.log_n) : 0);
    const int64_t widest = std::max(D, Dv);
    const double sum_n = gamma(row.n + (identity ? widest + 12 : 8)),
                 sum_rows = gamma(seq.lq * group + row.n * identity + (identity ? widest + 12 : 8));

    // Scores.
    std::vector<double> ex(n), size_x(n);
    double max_ex = 0, largest = row.x[0];
    for (size_t j = 0; j < n; ++j) {
      double products = 0;
      for (int64_t d = 0; d < D; ++d) products += std::abs(q[d] * key(j)[d]);
      size_x[j] = scale * products + shift + (s.mask.data ? std::abs(mask_value(s.mask, seq.b, head, i, row.key[j])) : 0);
      ex[j] = gamma(D + 4) * size_x[j];
      max_ex = std::max(max_ex, ex[j]);
      largest = std::max(largest, row.x[j]);
    }

    // h, h', w, log|w|: size_* are the magnitudes that rounding of sums is relative to.
    std::vector<double> eh(n), slope(n), eslope(n), w(n), size_w(n), ew(n), elog(n), size_log(n);
    double ambiguous = 0;
    for (size_t j = 0; j < n; ++j) {
      const double x = row.x[j], hj = row.h[j];
      w[j] = std::abs(row.weight(static_cast<int64_t>(j)));
      const double log_h = hj == 0 ? 0 : std::abs(std::log(std::abs(hj)));
      size_log[j] = hj == 0 ? 0 : log_h + log_c + 1;
      if (softmax) {
        const double relative =
            ex[j] + max_ex + u * (std::abs(x - largest) + std::abs(largest) + std::abs(row.lse) + static_cast<double>(n) + 8);
        eh[j] = ew[j] = hj * std::expm1(relative) + tiny;
        size_w[j] = hj;
        elog[j] = ex[j] + max_ex + u * (2 * std::abs(x) + 2 * std::abs(row.lse) + static_cast<double>(n) + 8);
        size_log[j] += std::abs(x) + std::abs(row.lse);
        ambiguous += hj <= eh[j] ? 1 : 0;
        continue;
      }
      const double below = reference::slope(h, x - ex[j]), above = reference::slope(h, x + ex[j]);
      slope[j] = reference::slope(h, x);
      const double steepest = std::max({std::abs(slope[j]), std::abs(below), std::abs(above)}) + 2 * curvature(h) * ex[j];
      eh[j] = steepest * ex[j] + value_error<T>(x, hj, slope[j]) + wide * std::abs(x);
      eslope[j] = std::max(std::abs(below - slope[j]), std::abs(above - slope[j])) + 2 * curvature(h) * ex[j] + slope_error<T>(slope[j]);
      size_w[j] = c * (identity ? size_x[j] : std::abs(hj));
      ew[j] = c * (eh[j] + 4 * u * std::abs(hj));
      const bool surely_zero = has_zeros(h) && x < -ex[j];
      if (surely_zero) continue;
      const bool lost = std::abs(hj) <= 2 * eh[j];
      elog[j] = lost ? largest_log + log_h : 2 * eh[j] / std::abs(hj) + 8 * u * (log_h + log_c + 1);
      ambiguous += lost ? 1 : 0;
    }

    // Forward.
    double* eout = &e.out[stat * static_cast<size_t>(Dv)];
    double size_E = 0;
    for (size_t j = 0; j < n; ++j) {
      for (int64_t d = 0; d < Dv; ++d) eout[d] += row.m[j] * (ew[j] + sum_n * size_w[j]) * std::abs(val(j)[d]);
      e.weight_sum[stat] += ew[j] + sum_n * size_w[j];
      // w log|w|: the slope log|w| + 1 is taken at the worse end of w +- e_w; where w is lost, both values may be anything up to there.
      const double most = w[j] + ew[j], least = w[j] - ew[j];
      const double at_most = most == 0 ? 0 : std::max(most * std::abs(std::log(most)), most > std::exp(-1) ? std::exp(-1) : 0);
      e.weight_log[stat] += w[j] <= 2 * ew[j] ? 2 * at_most : ew[j] * (1 + std::max(std::abs(std::log(most)), std::abs(std::log(least))));
      e.weight_log[stat] += (sum_n + 8 * u) * w[j] * size_log[j];
      size_E += w[j] * size_log[j];
    }
    e.zero_share[stat] += ambiguous / static_cast<double>(n) + 4 * u;
    e.lse[stat] += max_ex + u * (std::abs(largest) + std::abs(row.lse) + static_cast<double>(n) + 8);

    // Gradients of the weights.
    std::vector<double> G(n), size_G(n), eG(n);
    double mean_G = 0, emean_G = 0, size_mean_G = 0;
    for (size_t j = 0; j < n; ++j) {
      double product = 0, size = 0;
      for (int64_t d = 0; d < Dv; ++d) product += grad_out[d] * val(j)[d], size += std::abs(grad_out[d] * val(j)[d]);
      G[j] = row.m[j] * product, size_G[j] = row.m[j] * size;
      eG[j] = gamma(Dv + 4) * size_G[j];
      if (p.statistics && !softmax) {
        const double gs = p.grad_weight_sum[stat];
        G[j] += gs, size_G[j] += std::abs(gs), eG[j] += 2 * u * std::abs(gs);
      }
      if (p.statistics && row.h[j] != 0) {
        const double gl = p.grad_weight_log[stat], log_w = row.weight_log(static_cast<int64_t>(j)) + (softmax ? 0 : 1);
        G[j] += gl * log_w, size_G[j] += std::abs(gl) * size_log[j], eG[j] += 4 * u * std::abs(gl) * size_log[j];
      }
      if (p.statistics) eG[j] += std::abs(p.grad_weight_log[stat]) * elog[j];
      mean_G += row.h[j] * G[j], size_mean_G += row.h[j] * size_G[j];
    }
    if (softmax) {
      // Kernels find sum_j w_j G_j as grad_out . out + grad_log weight_log, from the forward's results.
      for (int64_t d = 0; d < Dv; ++d) emean_G += std::abs(grad_out[d]) * eout[d];
      emean_G += gamma(Dv + row.n + 8) * size_mean_G;
      if (p.statistics) emean_G += std::abs(p.grad_weight_log[stat]) * (e.weight_log[stat] + 4 * u * size_E);
    }

    // Gradients.
    const auto q_at = stat * static_cast<size_t>(D);
    for (size_t j = 0; j < n; ++j) {
      double dx, edx, size_dx;
      if (softmax) {
        dx = row.h[j] * std::abs(G[j] - mean_G);
        edx = ew[j] * std::abs(G[j] - mean_G) + (row.h[j] + ew[j]) * (eG[j] + emean_G + 2 * u * (std::abs(G[j]) + std::abs(mean_G))) +
              4 * u * dx;
        size_dx = dx;
      } else {
        dx = c * std::abs(slope[j] * G[j]);
        edx = c * ((std::abs(slope[j]) + eslope[j]) * eG[j] + eslope[j] * std::abs(G[j])) + 4 * u * dx;
        size_dx = identity ? c * size_G[j] : dx;
      }
      const auto kv_row = static_cast<size_t>((seq.b * s.Hkv + kv_head) * s.Lk + seq.k_begin + row.key[j]);
      for (int64_t d = 0; d < D; ++d) {
        const auto at = static_cast<size_t>(d);
        e.dq[q_at + at] += scale * (edx + sum_n * size_dx) * std::abs(key(j)[d]);
        e.dk[kv_row * static_cast<size_t>(D) + at] += scale * (edx + sum_rows * size_dx) * std::abs(q[d]);
      }
      for (int64_t d = 0; d < Dv; ++d)
        e.dv[kv_row * static_cast<size_t>(Dv) + static_cast<size_t>(d)] +=
            row.m[j] * (ew[j] + sum_rows * size_w[j]) * std::abs(grad_out[d]);
      if (!e.dmask.empty()) e.dmask[problem.dmask_at(seq.b, head, i, row.key[j])] += edx + gamma(summands + 4) * size_dx;
      const double size_h = identity ? size_x[j] : std::abs(row.h[j]);
      const double eproduct =
          eh[j] * std::abs(G[j]) + (std::abs(row.h[j]) + eh[j]) * eG[j] + gamma(row.n + 2 * widest + 64) * size_h * size_G[j];
      e.dgain[h_at] += row.length_power * eproduct;
      e.dalpha[h_at] += std::abs(row.log_n) * c * eproduct;
      e.dbias[h_at] += edx + gamma(row.n + 2 * widest + 64) * size_dx;
    }
  });
  return e;
}

// Every element within its bound. Says which element is the worst, and by how much.
template <typename T, typename R>
void expect_within(const char* what, const std::vector<T>& got, const std::vector<R>& wanted, const std::vector<double>& bound) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  ASSERT_LE(got.size(), bound.size()) << what;
  size_t wrong = 0, worst_at = 0;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto g = static_cast<double>(got[i]), w = static_cast<double>(wanted[i]);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    const double error = std::abs(g - w), ratio = std::isfinite(error) ? error / bound[i] : std::numeric_limits<double>::infinity();
    if (error <= bound[i]) continue;
    if (wrong++ == 0 || ratio > worst) worst = ratio, worst_at = i;
  }
  if (wrong == 0) return;
  ADD_FAILURE() << what << ": " << wrong << " of " << got.size() << " elements wrong; the worst, number " << worst_at << ", is "
                << got[worst_at] << ", should be " << static_cast<double>(wanted[worst_at]) << " within " << bound[worst_at] << " ("
                << worst << " times too far)";
}

template <typename T, typename R> void expect_within(const Results<T>& got, const Results<R>& wanted, const Results<double>& bounds) {
  expect_within("out", got.out, wanted.out, bounds.out);
  expect_within("weight_sum", got.weight_sum, wanted.weight_sum, bounds.weight_sum);
  expect_within("weight_log", got.weight_log, wanted.weight_log, bounds.weight_log);
  expect_within("zero_share", got.zero_share, wanted.zero_share, bounds.zero_share);
  expect_within("lse", got.lse, wanted.lse, bounds.lse);
  expect_within("dq", got.dq, wanted.dq, bounds.dq);
  expect_within("dk", got.dk, wanted.dk, bounds.dk);
  expect_within("dv", got.dv, wanted.dv, bounds.dv);
  expect_within("dgain", got.dgain, wanted.dgain, bounds.dgain);
  expect_within("dbias", got.dbias, wanted.dbias, bounds.dbias);
  expect_within("dalpha", got.dalpha, wanted.dalpha, bounds.dalpha);
  expect_within("dmask", got.dmask, wanted.dmask, bounds.dmask);
}

}  // namespace hinge::kernels::testing
