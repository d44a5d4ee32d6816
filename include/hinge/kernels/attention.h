// Point-wise attention on plain pointers: what is computed, and the entry points of the fused SIMD kernels.
// No torch here; the LibTorch op is hinge/ops/attention.h.
//
// Legend: B batch, Hq query heads, Hkv key/value heads (Hq a multiple of Hkv), Lq and Lk lengths, D width of queries and keys, Dv of
// values.
//
//   x_ij  = scale * q_i . k_j + mask_ij + b_h - [bias_log_n] log N_i
//   w_ij  = g_h * N_i^-alpha_h * h(x_ij)             if row i sees key j, else exactly 0
//   out_i = sum_j dropout(w_ij) * v_j
//
// Softmax is the exception: w_i = softmax of scale * q_i . k_j + mask_ij over the visible j; it takes no gain, bias, alpha or length rule.
// A row that sees no key gives zero, and so do its statistics and gradients. A hidden key is never read: it may hold anything.
//
// A visible key with a weight of exactly 0 (relu and its like) is mostly computed as 0 * v_j, but left out where neighbouring rows have no
// weight for it either. So if v_j is NaN or infinite behind such a weight, out_i may be NaN or finite; which of the two depends on the
// input, not on the number of workers. The gradients behave alike.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hinge/kernels/activations.h"
#include "hinge/kernels/half.h"
#include "hinge/kernels/parallel.h"

namespace hinge::kernels {

// What N_i means.
enum class LengthRule {
  none,     // N = 1
  fixed,    // N = length_n
  keys,     // N = Lk (of a jagged sequence: its own number of keys)
  visible,  // N_i = number of keys that row i sees
};
inline constexpr std::array<std::string_view, 4> kLengthRuleNames = {"none", "fixed", "keys", "visible"};

// The linear-time order q (k^T v) of the identity activation gives the same function; `automatic` takes it when it is cheaper.
enum class IdentityOrder { automatic, quadratic, linear };
inline constexpr std::array<std::string_view, 3> kIdentityOrderNames = {"auto", "quadratic", "linear"};

// A [B, H, L, D] array with any strides in B, H and L, counted in elements; neighbouring elements in D are adjacent.
template <typename T> struct View {
  T* data = nullptr;
  int64_t stride_b = 0;
  int64_t stride_h = 0;
  int64_t stride_l = 0;
};

// A mask [B, Hq, Lq, Lk] with any strides, counted in elements, 0 where it is broadcast. Boolean (one byte per element): key j is hidden
// from row i where it is 0. Additive: added to the scores, and a key is hidden where it is -inf.
enum class MaskType { boolean, float32, float64, bfloat16, float16 };
struct MaskView {
  const void* data = nullptr;  // null: no mask
  MaskType type = MaskType::boolean;
  int64_t stride_b = 0, stride_h = 0, stride_q = 0, stride_k = 0;
};

// The mask of HSTU, a causal one, with the names of that code. A sequence is contextual_seq_len items of context, then the history, then
// num_targets targets. Context sees context and history. An item of the history sees what is before it and itself. A target sees context,
// history and itself, but no other target. Counted in history, with the context as one item before it, a row of history sees at most
// max_attn_len items back, and a target at most the last max_attn_len (0: any number); context ignores that, and so do the last
// min_full_attn_seq_len rows of history, and with them, if that is not 0, all targets.
struct HstuMask {
  bool used = false;
  const int64_t* num_targets = nullptr;  // [sequences], or [B] if not jagged; null: 0
  int64_t max_attn_len = 0;
  int64_t contextual_seq_len = 0;
  int64_t min_full_attn_seq_len = 0;
};

struct AttentionShape {
  int64_t B = 0, Hq = 0, Hkv = 0, Lq = 0, Lk = 0, D = 0;
  int64_t Dv = 0;  // 0: D

  int64_t value_width() const { return Dv ? Dv : D; }

  // Row i sees the keys j with  j <= i + Lk - Lq  (right-aligned: the last query sees every key). Lk is the length of the array, also
  // with key_lengths: with Lq = Lk, row i then sees the first min(i + 1, key_lengths[b]) keys. For caches of different lengths, use
  // offsets.
  bool causal = false;

  // [B], each in [0, Lk]: batch row b sees only its first key_lengths[b] keys. Null: all.
  const int64_t* key_lengths = nullptr;

  // Row i, at the place p = i + Lk - Lq among the keys, sees only the keys from p - window_left to p + window_right. Below 0: no bound on
  // that side.
  int64_t window_left = -1, window_right = -1;

  // Together with everything above. Not for jagged sequences.
  MaskView mask = {};

  // Needs causal and Lq = Lk, of every sequence if jagged. Excludes key_lengths and windows.
  HstuMask hstu = {};

  // Jagged: B is 1 and sequence s owns query rows [q_offsets[s], q_offsets[s+1]) and keys [k_offsets[s], k_offsets[s+1]).
  // Both arrays have sequences + 1 entries, start at 0, never decrease and end at Lq and Lk. Null: not jagged.
  // Causal and windows are right-aligned within each sequence. Excludes key_lengths and mask.
  const int64_t* q_offsets = nullptr;
  const int64_t* k_offsets = nullptr;
  int64_t sequences = 0;
};

struct AttentionRule {
  Activation h = Activation::relu;
  double scale = 1.0;

  LengthRule length_rule = LengthRule::keys;
  double length_n = 1.0;    // for LengthRule::fixed
  bool bias_log_n = false;  // subtract log N_i inside h

  // Per query head [Hq]; null means the default for every head.
  const double* gain = nullptr;   // 1
  const double* bias = nullptr;   // 0
  const double* alpha = nullptr;  // 1

  // Each weight is dropped with probability `dropout` and the others divided by 1 - dropout (dropout.h: by a counter-based
  // generator, so that the fate of a weight depends on the seed and its place only).
  // Statistics are those of the weights before dropout.
  double dropout = 0.0;
  uint64_t seed = 0;

  IdentityOrder identity_order = IdentityOrder::automatic;
};

// How much of the products behind a relu-like h was skipped because a whole group of neighbouring query rows has weight zero for a
// key. Counted in (row group, key) pairs; both zero where nothing can be skipped (h without exact zeros).
struct SkipCount {
  int64_t groups = 0;
  int64_t skipped = 0;
  double share() const { return groups ? static_cast<double>(skipped) / static_cast<double>(groups) : 0.0; }
};

// S is what is stored, T what is computed with and what sums are kept in: float for float, bfloat16 and float16, double for double. Of
// bfloat16 and float16, inputs are converted where they are read, a tile or a panel at a time, and each result is rounded once.
template <typename S, typename T = ComputeType<S>> struct AttentionForward {
  View<const S> q, k, v;
  View<S> out;  // [B, Hq, Lq, Dv]

  // Optional, contiguous [B, Hq, Lq]. With w the weights as above and sums over the visible keys:
  T* weight_sum = nullptr;  // sum_j w_ij
  T* weight_log = nullptr;  // sum_j w_ij log |w_ij|, 0 log 0 = 0
  T* zero_share = nullptr;  // share of the visible keys with h(x_ij) == 0. Of softmax: where e^(x_ij - max) is 0 in this type, max over
                            // the keys up to the end of j's block of 256 only: with more keys, a lower bound of the share with w_ij == 0
  T* lse = nullptr;         // softmax only: log sum_j exp(scale * q_i . k_j); required for a later backward. -inf if no key is seen.

  SkipCount* skipped = nullptr;  // optional, [B * Hq]; of a jagged batch all sequences together
};

// Where the gradient of an additive mask goes: strides as in MaskView, 0 where the gradient is the sum. Added to: the caller clears it.
// Not both stride_q and stride_k may be 0, unless Lq or Lk is 1.
template <typename T> struct MaskGradient {
  T* data = nullptr;
  int64_t stride_b = 0, stride_h = 0, stride_q = 0, stride_k = 0;
};

template <typename S, typename T = ComputeType<S>> struct AttentionBackward {
  View<const S> q, k, v;
  View<const S> grad_out;              // [B, Hq, Lq, Dv]
  const T* grad_weight_sum = nullptr;  // optional, contiguous [B, Hq, Lq]
  const T* grad_weight_log = nullptr;  // optional, contiguous [B, Hq, Lq]

  // Softmax only: what forward gave. In the place of out, its products with grad_out may be given, contiguous [B, Hq, Lq]:
  // sum_d grad_out_id out_id is all that backward needs of it.
  View<const S> out;
  const T* out_products = nullptr;
  const T* lse = nullptr;
  const T* weight_log = nullptr;  // only with grad_weight_log

  View<S> dq, dk, dv;     // shapes of q, k, v; overwritten
  MaskGradient<T> dmask;  // optional

  // Optional [Hq], overwritten. Not for softmax.
  double* dgain = nullptr;
  double* dbias = nullptr;
  double* dalpha = nullptr;

  SkipCount* skipped = nullptr;  // optional, [B * Hq]
};

// Bytes of the largest scratch memory that a call of the kernels took since the last time this was asked. Two sums a row, which backward
// keeps in doubles for dgain, dbias and dalpha, are not counted.
size_t take_scratch_peak();

// The fused kernels, for float, double, BFloat16 and Float16. Arguments are trusted (the op checks them). Same input, same bits, for any
// number of workers.
template <typename S, typename T>
void attention_forward(const AttentionShape&, const AttentionRule&, const AttentionForward<S, T>&, Parallel&);
template <typename S, typename T>
void attention_backward(const AttentionShape&, const AttentionRule&, const AttentionBackward<S, T>&, Parallel&);

// True if the identity activation would run in linear time for this problem.
bool takes_linear_order(const AttentionShape&, const AttentionRule&, bool weight_log_or_zero_share);

}  // namespace hinge::kernels
