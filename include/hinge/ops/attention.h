// Point-wise attention on LibTorch tensors, with autograd: the C++ face of the torch op hinge::attention.
//
// Legend: B batch, Hq query heads, Hkv key/value heads (Hq a multiple of Hkv), Lq and Lk lengths, D width of queries and keys, Dv of
// values.
//
//   x_ij  = scale * q_i . k_j + attn_mask_ij + bias_h - [bias_log_n] log N_i
//   w_ij  = gain_h * N_i^-alpha_h * h(x_ij)          if row i sees key j, else exactly 0
//   out_i = sum_j dropout(w_ij) * v_j
//
// Softmax is the exception: w_i = softmax of scale * q_i . k_j + attn_mask_ij over the visible j; it takes no gain, bias, alpha or length
// rule.
// CPU tensors run in the fused kernels; tensors of another device take the same computation written in ATen calls. Hidden keys may hold
// anything; what NaN behind a weight of exactly 0 gives is said in hinge/kernels/attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hinge/kernels/attention.h"

namespace hinge {

// A number for every query head: one for all of them, or a float32 or float64 tensor with 1 or Hq elements, which may require grad.
// Default constructed: the default of the option.
struct PerHead {
  PerHead() = default;
  PerHead(double value);                                     // NOLINT(google-explicit-constructor): options.alpha = 0.5
  PerHead(at::Tensor tensor) : values(std::move(tensor)) {}  // NOLINT(google-explicit-constructor): options.gain = parameter

  at::Tensor values;
};

// How far a row sees to either side of its own place among the keys; below 0: no bound on that side.
struct Window {
  int64_t left = -1, right = -1;
  bool operator==(const Window&) const = default;
};

// The options: type, name and default of each. Everything that goes through all of them is made from this list: the fields of
// AttentionOptions, the arguments of the torch op with their defaults, what autograd keeps for backward (src/ops/attention_options.h).
// PER_HEAD(name, number) is an option of the type PerHead; the number is what every head has if nothing is given.
// A new option is a line here, its meaning in src/ops/attention_arguments.cc, and its signature and docstring in python/hinge/attention.py.
// clang-format off
#define HINGE_FOR_EACH_ATTENTION_OPTION(OPTION, PER_HEAD)                                                                                  \
  OPTION(kernels::Activation,    h,              kernels::Activation::relu)                                                                \
  OPTION(std::optional<double>,  scale,          std::nullopt)               /* 1 / sqrt(D) if not given */                                \
                                                                                                                                           \
  OPTION(kernels::LengthRule,    length_rule,    kernels::LengthRule::keys)  /* what N_i is */                                             \
  OPTION(double,                 length_n,       1.0)                        /* N_i, for LengthRule::fixed */                              \
  PER_HEAD(                      alpha,          1.0)                                                                                      \
  PER_HEAD(                      gain,           1.0)                                                                                      \
  PER_HEAD(                      bias,           0.0)                                                                                      \
  OPTION(bool,                   bias_log_n,     false)                      /* subtract log N_i from the scores */                        \
                                                                                                                                           \
  OPTION(bool,                   causal,         false)                      /* right-aligned: the last query sees every key */            \
  OPTION(at::Tensor,             key_lengths,    at::Tensor())               /* int64 or int32 [B]: row b sees its first key_lengths[b] */ \
  OPTION(std::optional<Window>,  window,         std::nullopt)               /* row i sees i + Lk - Lq - left .. i + Lk - Lq + right */     \
  OPTION(at::Tensor,             attn_mask,      at::Tensor())               /* broadcasts to [B, Hq, Lq, Lk]. bool: true is visible; */   \
                                                                             /* else added to the scores, -inf hides */                    \
  OPTION(at::Tensor,             q_offsets,      at::Tensor())               /* jagged, B = 1: int64 or int32 [sequences + 1], */          \
  OPTION(at::Tensor,             k_offsets,      at::Tensor())               /* from 0 to Lq and to Lk; excludes key_lengths */            \
                                                                                                                                           \
  OPTION(at::Tensor,             num_targets,    at::Tensor())               /* HSTU's causal mask (kernels::HstuMask): int64 or int32 */  \
  OPTION(int64_t,                max_attn_len,   0)                          /* [B] or [sequences]; 0: no bound; */                        \
  OPTION(int64_t,                contextual_seq_len, 0)                      /* items of context */                                        \
  OPTION(int64_t,                min_full_attn_seq_len, 0)                   /* last rows of history that ignore max_attn_len */          \
                                                                                                                                           \
  OPTION(double,                 dropout,        0.0)                        /* probability in [0, 1) that a weight is dropped */          \
  OPTION(at::Tensor,             seed,           at::Tensor())               /* int64, one element, says which; drawn if undefined */      \
                                                                                                                                           \
  OPTION(kernels::IdentityOrder, identity_order, kernels::IdentityOrder::automatic)
// clang-format on

struct AttentionOptions {
#define HINGE_FIELD(type, name, initial)   type name = initial;
#define HINGE_PER_HEAD_FIELD(name, number) PerHead name = {};
  HINGE_FOR_EACH_ATTENTION_OPTION(HINGE_FIELD, HINGE_PER_HEAD_FIELD)
#undef HINGE_FIELD
#undef HINGE_PER_HEAD_FIELD
};

// Per query row [B, Hq, Lq], of the weights before dropout. weight_sum and weight_log are differentiable.
struct AttentionResult {
  at::Tensor out;            // [B, Hq, Lq, Dv]
  at::Tensor weight_sum;     // sum_j w_ij
  at::Tensor weight_log;     // sum_j w_ij log |w_ij|
  at::Tensor zero_share;     // share of the visible keys with w_ij == 0; of softmax over more than 256 keys a lower bound
  at::Tensor skipped_share;  // [B, Hq]: share of the work behind a relu-like h that exact zeros saved
};

// q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv], float32, float64, bfloat16 or float16 (both computed in float32), any strides in
// B, H and L. The result's memory follows q's order of dimensions: with q a transposed [B, Lq, Hq, D], merging the heads of the result is
// free. Throws c10::Error on bad input. Gradients flow to q, k, v, gain, bias, alpha and an additive attn_mask; a second differentiation
// throws.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options = {});
AttentionResult attention_with_statistics(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const AttentionOptions& options = {});

// The word of a length rule (kernels::kLengthRuleNames), and back; nothing for another word.
std::string length_rule_name(kernels::LengthRule rule);
std::optional<kernels::LengthRule> parse_length_rule(std::string_view name);
std::vector<std::string> length_rule_names();

// The published systems as points in the space of options: relu-vit, reluformer, relu2, sigmoid, silu, linear, softmax.
// gamma is the ReLUFormer's (its gain is sqrt(2) / gamma) and has no meaning for the others.
std::vector<std::string> preset_names();
AttentionOptions preset(std::string_view name, double gamma = 1.0);

}  // namespace hinge
