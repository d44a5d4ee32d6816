#include "hinge/kernels/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "hinge/kernels/dropout.h"
#include "kernels/sequences.h"

#define HWY_TARGET_INCLUDE "kernels/sparse_attention.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/rows-inl.h"

#ifndef HINGE_SPARSE_ATTENTION_ONCE_
#define HINGE_SPARSE_ATTENTION_ONCE_
namespace hinge::kernels {

// A key with a weight that is not zero.
struct SparseWeight {
  int64_t key = 0;
  double weight = 0;  // w
  double root = 0;    // sqrt(w), for entmax15
  double factor = 1;  // dropout's: 0 or 1 / (1 - dropout)
};

// Scratch memory of a worker.
struct SparseScratch {
  std::vector<double> z, sorted;
  std::vector<int64_t> key;
  std::vector<SparseWeight> weights;
};

// tau for z in falling order whose first element is 0 (scores less the largest one). The support of size k is the largest for which the
// threshold of its elements alone leaves them all above it. Of a support of size k with the mean m and the sum of squares around it ss:
//   sparsemax  sum (z - tau) = 1    ->  tau = m - 1 / k
//   entmax15   sum (z - tau)^2 = 1  ->  tau = m - sqrt((1 - ss) / k)
inline double sparse_threshold(SparseRule rule, const std::vector<double>& z) {
  double mean = 0, squares = 0, tau = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    const auto k = static_cast<double>(i + 1);
    const double from_mean = z[i] - mean;
    mean += from_mean / k;
    squares += from_mean * (z[i] - mean);
    if (rule == SparseRule::entmax15 && squares > 1) break;
    const double next = rule == SparseRule::sparsemax ? mean - 1 / k : mean - std::sqrt((1 - squares) / k);
    if (next >= z[i]) break;
    tau = next;
  }
  return tau;
}

}  // namespace hinge::kernels
#endif  // HINGE_SPARSE_ATTENTION_ONCE_

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> HWY_INLINE T Dot(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int64_t D) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  ForVectors(d, D, [&](int64_t j, int64_t n) HWY_ATTR { sum = hn::MulAdd(LoadFirst(d, a + j, n), LoadFirst(d, b + j, n), sum); });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// to += factor * from
template <typename T> HWY_INLINE void AddTo(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, double factor, int64_t D) {
  const hn::ScalableTag<T> d;
  const auto f = hn::Set(d, static_cast<T>(factor));
  ForVectors(d, D, [&](int64_t j, int64_t n) HWY_ATTR {
    StoreFirst(hn::MulAdd(LoadFirst(d, from + j, n), f, LoadFirst(d, to + j, n)), d, to + j, n);
  });
}

// The weights of row i that are not zero, in the order of keys. False: a score is not a number.
template <typename T>
bool RowOfWeights(SparseRule which, const AttentionShape& shape, const AttentionRule& rule, const View<const T>& q, const View<const T>& k,
                  const Sequence& seq, int64_t head, int64_t i, SparseScratch& s) {
  const int64_t n = seq.visible(i);
  const T* query = row_of(q, seq.b, head, seq.q_begin + i);
  s.z.resize(static_cast<size_t>(n));
  double largest = -std::numeric_limits<double>::infinity();
  bool numbers = true;
  const double scale = which == SparseRule::entmax15 ? rule.scale / 2 : rule.scale;
  for (int64_t j = 0; j < n; ++j) {
    const double x = scale * static_cast<double>(Dot(query, row_of(k, seq.b, head, seq.k_begin + j), shape.D));
    numbers &= std::isfinite(x);
    largest = std::max(largest, x);
    s.z[static_cast<size_t>(j)] = x;
  }
  s.weights.clear();
  if (!numbers) return false;
  // The largest weight is at most 1, so tau is at least largest - 1 for both rules.
  s.key.clear(), s.sorted.clear();
  for (int64_t j = 0; j < n; ++j)
    if (const double z = s.z[static_cast<size_t>(j)] - largest; z > -1) s.key.push_back(j), s.sorted.push_back(z);
  std::sort(s.sorted.begin(), s.sorted.end(), std::greater<>());
  const double tau = sparse_threshold(which, s.sorted);
  const uint32_t threshold = dropout_threshold(rule.dropout);
  for (const int64_t j : s.key) {
    const double above = s.z[static_cast<size_t>(j)] - largest - tau;
    if (above <= 0) continue;
    const bool kept = threshold == 0 || dropout_keeps(rule.seed, threshold, seq.b * shape.Hq + head, seq.q_begin + i, j);
    s.weights.push_back({j, which == SparseRule::sparsemax ? above : above * above, above, kept ? dropout_scale(rule.dropout) : 0});
  }
  return true;
}

template <typename T>
void Forward(SparseRule which, const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<T>& io, Parallel& parallel) {
  std::vector<SparseScratch> scratch(static_cast<size_t>(parallel.workers()));
  parallel.run(sequence_count(shape) * shape.Hq, [&](int64_t task, int worker) HWY_ATTR {
    const Sequence seq = sequence(shape, task / shape.Hq);
    const int64_t head = task % shape.Hq;
    SparseScratch& s = scratch[static_cast<size_t>(worker)];
    for (int64_t i = 0; i < seq.lq; ++i) {
      T* out = row_of(io.out, seq.b, head, seq.q_begin + i);
      const bool numbers = RowOfWeights(which, shape, rule, io.q, io.k, seq, head, i, s);
      std::fill_n(out, shape.D, numbers ? T{0} : std::numeric_limits<T>::quiet_NaN());
      for (const SparseWeight& w : s.weights) AddTo(out, row_of(io.v, seq.b, head, seq.k_begin + w.key), w.weight * w.factor, shape.D);
    }
  });
}

// With G_j = m_j grad_out . v_j over the support:  sparsemax  dx_j = G_j - mean(G);  entmax15  dx_j = r_j (G_j - sum(r G) / sum(r)),
// r = sqrt(w). (The half of x / 2 and the two of the square cancel.)
template <typename T>
void Backward(SparseRule which, const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<T>& io,
              Parallel& parallel) {
  std::vector<SparseScratch> scratch(static_cast<size_t>(parallel.workers()));
  parallel.run(sequence_count(shape) * shape.Hq, [&](int64_t task, int worker) HWY_ATTR {
    const Sequence seq = sequence(shape, task / shape.Hq);
    const int64_t head = task % shape.Hq;
    SparseScratch& s = scratch[static_cast<size_t>(worker)];
    for (int64_t j = 0; j < seq.lk; ++j) {
      std::fill_n(row_of(io.dk, seq.b, head, seq.k_begin + j), shape.D, T{0});
      std::fill_n(row_of(io.dv, seq.b, head, seq.k_begin + j), shape.D, T{0});
    }
    for (int64_t i = 0; i < seq.lq; ++i) {
      const T *q = row_of(io.q, seq.b, head, seq.q_begin + i), *grad = row_of(io.grad_out, seq.b, head, seq.q_begin + i);
      T* dq = row_of(io.dq, seq.b, head, seq.q_begin + i);
      const bool numbers = RowOfWeights(which, shape, rule, io.q, io.k, seq, head, i, s);
      std::fill_n(dq, shape.D, numbers ? T{0} : std::numeric_limits<T>::quiet_NaN());
      double sum = 0, roots = 0;
      s.z.clear();
      for (const SparseWeight& w : s.weights) {
        const double r = which == SparseRule::sparsemax ? 1 : w.root;
        s.z.push_back(w.factor == 0 ? 0
                                    : w.factor * static_cast<double>(Dot(grad, row_of(io.v, seq.b, head, seq.k_begin + w.key), shape.D)));
        sum += r * s.z.back();
        roots += r;
      }
      for (size_t at = 0; at < s.weights.size(); ++at) {
        const SparseWeight& w = s.weights[at];
        const double dx = (which == SparseRule::sparsemax ? 1 : w.root) * (s.z[at] - sum / roots) * rule.scale;
        AddTo(dq, row_of(io.k, seq.b, head, seq.k_begin + w.key), dx, shape.D);
        AddTo(row_of(io.dk, seq.b, head, seq.k_begin + w.key), q, dx, shape.D);
        if (w.factor != 0) AddTo(row_of(io.dv, seq.b, head, seq.k_begin + w.key), grad, w.weight * w.factor, shape.D);
      }
    }
  });
}

HINGE_FLOAT_AND_DOUBLE(Forward);
HINGE_FLOAT_AND_DOUBLE(Backward);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Forward);
HINGE_EXPORT(Backward);

template <typename T>
void sparse_attention_forward(SparseRule which, const AttentionShape& shape, const AttentionRule& rule, const AttentionForward<T>& io,
                              Parallel& parallel) {
  HINGE_DISPATCH(Forward, T)(which, shape, rule, io, parallel);
}
template <typename T>
void sparse_attention_backward(SparseRule which, const AttentionShape& shape, const AttentionRule& rule, const AttentionBackward<T>& io,
                               Parallel& parallel) {
  HINGE_DISPATCH(Backward, T)(which, shape, rule, io, parallel);
}

HINGE_INSTANTIATE(sparse_attention_forward);
HINGE_INSTANTIATE(sparse_attention_backward);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
