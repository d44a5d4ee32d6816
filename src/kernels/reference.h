// The meaning of attention in plain loops: every option of hinge/kernels/attention.h, forward and backward, in whichever type is asked
// for. Slow on purpose; the fast kernels are tested against it. Notation as in attention.h, and
//   c_i  = g_h N_i^-alpha_h     so that w_ij = c_i h(x_ij)
//   m_ij = 1 / (1 - dropout) if the weight is kept, else 0
// A hidden key is never read: it may hold anything.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/attention.h"
#include "hinge/kernels/dropout.h"
#include "kernels/sequences.h"

namespace hinge::kernels::reference {

template <typename T> T value(Activation h, T x) {
  switch (h) {
#define HINGE_VALUE(name, cls) \
  case Activation::name: return scalar::cls::value(x);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_VALUE)
#undef HINGE_VALUE
    case Activation::softmax: break;
  }
  return x;
}

template <typename T> T slope(Activation h, T x) {
  switch (h) {
#define HINGE_SLOPE(name, cls) \
  case Activation::name: return scalar::cls::slope(x);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_SLOPE)
#undef HINGE_SLOPE
    case Activation::softmax: break;
  }
  return T(1);
}

template <typename T, typename U> T dot(const U* a, const U* b, int64_t D) {
  T sum = 0;
  for (int64_t d = 0; d < D; ++d) sum += T(a[d]) * T(b[d]);
  return sum;
}

// Calls body(sequence, query head, i) for every query row.
template <typename Body> void for_each_row(const AttentionShape& shape, Body&& body) {
  for (int64_t s = 0; s < sequence_count(shape); ++s)
    for (int64_t head = 0; head < shape.Hq; ++head)
      for (int64_t i = 0; i < sequence(shape, s).lq; ++i) body(sequence(shape, s), head, i);
}

// One row of weights, and what was on the way to it. Entries for the n visible keys only; `key` says which they are, counted from the
// sequence's first.
template <typename T> struct Row {
  int64_t n = 0;
  std::vector<int64_t> key;
  T log_n = 0;         // log N_i
  T length_power = 1;  // N_i^-alpha
  T c = 1;             // g N_i^-alpha; 1 for softmax
  T lse = -std::numeric_limits<T>::infinity();
  std::vector<T> x;  // scores
  std::vector<T> h;  // h(x); of softmax the weight
  std::vector<T> m;  // dropout's factor

  // Of the visible key number j.
  T weight(int64_t j) const { return c * h[static_cast<size_t>(j)]; }
  int64_t key_at(int64_t j) const { return key[static_cast<size_t>(j)]; }

  // log |w_ij|, and 0 in place of the log of a zero factor.
  T weight_log(int64_t j) const {
    const T hj = h[static_cast<size_t>(j)];
    return (c == 0 ? T(0) : std::log(std::abs(c))) + (hj == 0 ? T(0) : std::log(std::abs(hj)));
  }
};

template <typename T>
Row<T> row_of_weights(const AttentionShape& shape, const AttentionRule& rule, const View<const T>& q, const View<const T>& k,
                      const Sequence& seq, int64_t head, int64_t i) {
  const int64_t kv_head = head / (shape.Hq / shape.Hkv);
  const bool softmax = rule.h == Activation::softmax;
  Row<T> row;
  const auto mask = [&](int64_t j) { return shape.mask.data ? mask_value(shape.mask, seq.b, head, i, j) : 0.0; };
  const RowKeys keys = seq.keys_of(i);
  for (int64_t j = keys.begin; j < keys.last_end(); ++j)
    if (keys.contains(j) && mask(j) != -std::numeric_limits<double>::infinity()) row.key.push_back(j);
  row.n = static_cast<int64_t>(row.key.size());
  if (row.n == 0) return row;

  if (!softmax) {
    row.log_n = std::log(T(seq.row_length(rule, row.n)));
    row.length_power = std::pow(T(seq.row_length(rule, row.n)), -T(rule.alpha ? rule.alpha[head] : 1.0));
    row.c = T(rule.gain ? rule.gain[head] : 1.0) * row.length_power;
  }
  const T shift = softmax ? T(0) : T(rule.bias ? rule.bias[head] : 0.0) - (rule.bias_log_n ? row.log_n : T(0));
  for (const int64_t j : row.key) {
    const T score = dot<T>(row_of(q, seq.b, head, seq.q_begin + i), row_of(k, seq.b, kv_head, seq.k_begin + j), shape.D);
    row.x.push_back(T(rule.scale) * score + T(mask(j)) + shift);
    row.h.push_back(value(rule.h, row.x.back()));
    const bool kept =
        rule.dropout == 0 || dropout_keeps(rule.seed, dropout_threshold(rule.dropout), seq.b * shape.Hq + head, seq.q_begin + i, j);
    row.m.push_back(kept ? T(dropout_scale(rule.dropout)) : T(0));
  }
  if (softmax) {
    T largest = row.x[0], sum = 0;
    for (T x : row.x) largest = x > largest || std::isnan(x) ? x : largest;
    for (T x : row.x) sum += std::exp(x - largest);
    row.lse = largest == -std::numeric_limits<T>::infinity() ? largest : largest + std::log(sum);
    for (size_t j = 0; j < row.h.size(); ++j) row.h[j] = std::exp(row.x[j] - largest) / sum;
  }
  return row;
}

template <typename T> void attention_forward(const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<T>& io) {
  for_each_row(shape, [&](const Sequence& seq, int64_t head, int64_t i) {
    const int64_t kv_head = head / (shape.Hq / shape.Hkv), row_at = seq.q_begin + i;
    const Row<T> row = row_of_weights(shape, rule, io.q, io.k, seq, head, i);

    T* out = row_of(io.out, seq.b, head, row_at);
    std::fill_n(out, shape.value_width(), T(0));
    T weight_sum = 0, weight_log = 0, zeros = 0;
    for (int64_t j = 0; j < row.n; ++j) {
      const T w = row.weight(j), dropped = w * row.m[static_cast<size_t>(j)];
      const T* v = row_of(io.v, seq.b, kv_head, seq.k_begin + row.key_at(j));
      for (int64_t d = 0; d < shape.value_width(); ++d) out[d] += dropped * v[d];
      weight_sum += w;
      weight_log += w == 0 ? T(0) : w * row.weight_log(j);
      zeros += row.h[static_cast<size_t>(j)] == 0 ? T(1) : T(0);
    }

    const int64_t stat = (seq.b * shape.Hq + head) * shape.Lq + row_at;
    if (io.weight_sum) io.weight_sum[stat] = weight_sum;
    if (io.weight_log) io.weight_log[stat] = weight_log;
    if (io.zero_share) io.zero_share[stat] = row.n ? zeros / T(row.n) : T(0);
    if (io.lse) io.lse[stat] = row.lse;
  });
}

// With G_ij the gradient of the loss with respect to w_ij,
//   G_ij = m_ij grad_out_i . v_j + grad_weight_sum_i + grad_weight_log_i (log |w_ij| + 1)     (last term 0 where h(x_ij) is 0)
//   dv_j   = sum_i m_ij w_ij grad_out_i
//   dx_ij  = c_i h'(x_ij) G_ij
//   dgain  = sum_ij N_i^-alpha h(x_ij) G_ij
//   dalpha = -sum_ij log N_i w_ij G_ij
//   dbias  = sum_ij dx_ij
//   dq_i   = scale sum_j dx_ij k_j,   dk_j = scale sum_i dx_ij q_i,   dmask_ij = dx_ij, summed where the mask is broadcast
// and for softmax  dx_ij = w_ij (G_ij - sum_l w_il G_il).  The constant terms of G cancel there: the weight sum is always 1.
// Needs nothing from forward: scores, and for softmax out, lse and weight_log, are found again.
template <typename T> void attention_backward(const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<T>& io) {
  for (int64_t b = 0; b < shape.B; ++b)
    for (int64_t head = 0; head < shape.Hkv; ++head)
      for (int64_t j = 0; j < shape.Lk; ++j) {
        std::fill_n(row_of(io.dk, b, head, j), shape.D, T(0));
        std::fill_n(row_of(io.dv, b, head, j), shape.value_width(), T(0));
      }
  std::vector<T> dgain(static_cast<size_t>(shape.Hq)), dbias(dgain), dalpha(dgain);

  for_each_row(shape, [&](const Sequence& seq, int64_t head, int64_t i) {
    const int64_t kv_head = head / (shape.Hq / shape.Hkv), row_at = seq.q_begin + i;
    const int64_t stat = (seq.b * shape.Hq + head) * shape.Lq + row_at;
    const size_t h_at = static_cast<size_t>(head);
    const Row<T> row = row_of_weights(shape, rule, io.q, io.k, seq, head, i);

    const T* q = row_of(io.q, seq.b, head, row_at);
    const T* grad_out = row_of(io.grad_out, seq.b, head, row_at);
    T* dq = row_of(io.dq, seq.b, head, row_at);
    std::fill_n(dq, shape.D, T(0));

    std::vector<T> G(static_cast<size_t>(row.n));
    T mean_G = 0;  // sum_j w_ij G_ij, for softmax
    for (int64_t j = 0; j < row.n; ++j) {
      const size_t at_j = static_cast<size_t>(j);
      G[at_j] = row.m[at_j] * dot<T>(grad_out, row_of(io.v, seq.b, kv_head, seq.k_begin + row.key_at(j)), shape.value_width());
      if (io.grad_weight_sum) G[at_j] += io.grad_weight_sum[stat];
      if (io.grad_weight_log && row.h[at_j] != 0) G[at_j] += io.grad_weight_log[stat] * (row.weight_log(j) + 1);
      mean_G += row.weight(j) * G[at_j];
    }

    for (int64_t j = 0; j < row.n; ++j) {
      const size_t at_j = static_cast<size_t>(j);
      const T w = row.weight(j);
      const T dx = rule.h == Activation::softmax ? w * (G[at_j] - mean_G) : row.c * slope(rule.h, row.x[at_j]) * G[at_j];
      const T* k = row_of(io.k, seq.b, kv_head, seq.k_begin + row.key_at(j));
      T* dk = row_of(io.dk, seq.b, kv_head, seq.k_begin + row.key_at(j));
      T* dv = row_of(io.dv, seq.b, kv_head, seq.k_begin + row.key_at(j));
      for (int64_t d = 0; d < shape.D; ++d) {
        dq[d] += T(rule.scale) * dx * k[d];
        dk[d] += T(rule.scale) * dx * q[d];
      }
      for (int64_t d = 0; d < shape.value_width(); ++d) dv[d] += row.m[at_j] * w * grad_out[d];
      if (const MaskGradient<T>& to = io.dmask; to.data)
        to.data[seq.b * to.stride_b + head * to.stride_h + i * to.stride_q + row.key_at(j) * to.stride_k] += dx;
      dgain[h_at] += row.length_power * row.h[at_j] * G[at_j];
      dbias[h_at] += dx;
      dalpha[h_at] -= row.log_n * w * G[at_j];
    }
  });

  for (int64_t head = 0; head < shape.Hq; ++head) {
    const size_t h_at = static_cast<size_t>(head);
    if (io.dgain) io.dgain[head] = static_cast<double>(dgain[h_at]);
    if (io.dbias) io.dbias[head] = static_cast<double>(dbias[h_at]);
    if (io.dalpha) io.dalpha[head] = static_cast<double>(dalpha[h_at]);
  }
}

}  // namespace hinge::kernels::reference
