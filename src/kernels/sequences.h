// The independent problems inside one call of attention: a batch row, or a jagged sequence. Which rows and keys it owns, which keys
// each of its rows sees, and what N_i is. Used by the reference and by the fast kernels, so that both mean the same.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hinge/kernels/attention.h"

namespace hinge::kernels {

struct Sequence {
  int64_t b = 0;                     // batch row of the arrays
  int64_t q_begin = 0, k_begin = 0;  // where its query rows and its keys start in that batch row
  int64_t lq = 0, lk = 0;            // how many it has
  int64_t seen = 0;                  // only the first `seen` of its keys are visible to any row
  bool causal = false;

  // Row i (counted from q_begin) sees the keys 0 .. visible(i) - 1 (counted from k_begin). Never decreases with i.
  int64_t visible(int64_t i) const { return causal ? std::clamp<int64_t>(i + 1 + lk - lq, 0, seen) : seen; }

  // N_i. May be 0 for a row that sees no key, whose results are zero anyway.
  double row_length(const AttentionRule& rule, int64_t i) const {
    switch (rule.length_rule) {
      case LengthRule::none: return 1.0;
      case LengthRule::fixed: return rule.length_n;
      case LengthRule::keys: return static_cast<double>(lk);
      case LengthRule::visible: return static_cast<double>(visible(i));
    }
    return 1.0;
  }
};

// Row l of a head.
template <typename T> T* row_of(const View<T>& view, int64_t b, int64_t head, int64_t l) {
  return view.data + b * view.stride_b + head * view.stride_h + l * view.stride_l;
}

inline int64_t sequence_count(const AttentionShape& shape) { return shape.q_offsets ? shape.sequences : shape.B; }

inline Sequence sequence(const AttentionShape& shape, int64_t s) {
  if (shape.q_offsets) {
    const int64_t lq = shape.q_offsets[s + 1] - shape.q_offsets[s], lk = shape.k_offsets[s + 1] - shape.k_offsets[s];
    return {0, shape.q_offsets[s], shape.k_offsets[s], lq, lk, lk, shape.causal};
  }
  const int64_t seen = shape.key_lengths ? std::min(shape.Lk, shape.key_lengths[s]) : shape.Lk;
  return {s, 0, 0, shape.Lq, shape.Lk, seen, shape.causal};
}

}  // namespace hinge::kernels
