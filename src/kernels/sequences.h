// The independent problems inside one call of attention: a batch row, or a jagged sequence. Which rows and keys it owns, which keys
// each of its rows sees, and what N_i is. Used by the reference and by the fast kernels, so that both mean the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hinge/kernels/attention.h"

namespace hinge::kernels {

// The keys [begin, end), and the key `own` behind them unless it is -1.
struct RowKeys {
  int64_t begin = 0, end = 0, own = -1;

  int64_t count() const { return end - begin + (own >= 0 ? 1 : 0); }
  int64_t last_end() const { return own >= 0 ? own + 1 : end; }
  bool contains(int64_t j) const { return (j >= begin && j < end) || j == own; }
};

struct Sequence {
  int64_t b = 0;                     // batch row of the arrays
  int64_t q_begin = 0, k_begin = 0;  // where its query rows and its keys start in that batch row
  int64_t lq = 0, lk = 0;            // how many it has
  int64_t seen = 0;                  // only the first `seen` of its keys are visible to any row
  int64_t left = -1, right = -1;     // window, below 0: no bound; causal: right is 0
  bool hstu = false;
  // hstu: items of context; where targets begin; max_attn_len; the row from which on that is ignored
  int64_t context = 0, history_end = 0, past = 0, full_begin = std::numeric_limits<int64_t>::max();

  // True if some rows see less at the end than others.
  bool causal() const { return right >= 0; }

  // Without a window on the left and HSTU's mask (which have RowKeys): row i (counted from q_begin) sees the keys 0 .. visible(i) - 1
  // (counted from k_begin). Never decreases with i.
  int64_t visible(int64_t i) const { return causal() ? std::clamp<int64_t>(i + 1 + right + lk - lq, 0, seen) : seen; }

  // Which keys row i sees, before the mask.
  RowKeys keys_of(int64_t i) const {
    if (!hstu) {
      const int64_t end = visible(i);
      return {left < 0 ? 0 : std::clamp<int64_t>(i + lk - lq - left, 0, end), end, -1};
    }
    if (i < context) return {0, history_end, -1};
    // Item numbers: all of the context is number 0, or the first item is if there is none.
    const int64_t before = std::max<int64_t>(context - 1, 0), number = std::min(i, history_end) - before;
    const int64_t begin = past > 0 && number > past && i < full_begin ? number - past + before : 0;
    return i < history_end ? RowKeys{begin, i + 1, -1} : RowKeys{std::min(begin, history_end), history_end, i};
  }

  // N_i for a row that sees n keys. May be 0 for a row that sees no key, whose results are zero anyway.
  double row_length(const AttentionRule& rule, int64_t n) const {
    switch (rule.length_rule) {
      case LengthRule::none: return 1.0;
      case LengthRule::fixed: return rule.length_n;
      case LengthRule::keys: return static_cast<double>(lk);
      case LengthRule::visible: return static_cast<double>(n);
    }
    return 1.0;
  }
};

// Row l of a head.
template <typename T> T* row_of(const View<T>& view, int64_t b, int64_t head, int64_t l) {
  return view.data + b * view.stride_b + head * view.stride_h + l * view.stride_l;
}

// What the mask adds to a score; -inf: the key is hidden.
inline double mask_value(const MaskView& mask, int64_t b, int64_t head, int64_t i, int64_t j) {
  const int64_t at = b * mask.stride_b + head * mask.stride_h + i * mask.stride_q + j * mask.stride_k;
  switch (mask.type) {
    case MaskType::boolean: return static_cast<const uint8_t*>(mask.data)[at] ? 0 : -std::numeric_limits<double>::infinity();
    case MaskType::float32: return static_cast<double>(static_cast<const float*>(mask.data)[at]);
    case MaskType::float64: return static_cast<const double*>(mask.data)[at];
    case MaskType::bfloat16: return static_cast<double>(static_cast<const BFloat16*>(mask.data)[at]);
    case MaskType::float16: return static_cast<double>(static_cast<const Float16*>(mask.data)[at]);
  }
  return 0;
}

inline int64_t sequence_count(const AttentionShape& shape) { return shape.q_offsets ? shape.sequences : shape.B; }

inline Sequence sequence(const AttentionShape& shape, int64_t s) {
  Sequence seq{s, 0, 0, shape.Lq, shape.Lk, shape.key_lengths ? std::min(shape.Lk, shape.key_lengths[s]) : shape.Lk};
  if (shape.q_offsets) {
    const int64_t lq = shape.q_offsets[s + 1] - shape.q_offsets[s], lk = shape.k_offsets[s + 1] - shape.k_offsets[s];
    seq = {0, shape.q_offsets[s], shape.k_offsets[s], lq, lk, lk};
  }
  seq.left = shape.window_left;
  seq.right = shape.causal ? 0 : shape.window_right;
  if (shape.hstu.used) {
    seq.hstu = true;
    seq.context = std::min(shape.hstu.contextual_seq_len, seq.lk);
    seq.history_end = seq.lk - (shape.hstu.num_targets ? shape.hstu.num_targets[s] : 0);
    seq.past = shape.hstu.max_attn_len;
    if (shape.hstu.min_full_attn_seq_len > 0) seq.full_begin = seq.history_end - shape.hstu.min_full_attn_seq_len;
  }
  return seq;
}

}  // namespace hinge::kernels
