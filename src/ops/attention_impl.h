// What the parts of the attention op share: its checked arguments, and its two implementations (fused on CPU, ATen calls elsewhere).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>
#include <type_traits>

#include "hinge/kernels/attention.h"
#include "hinge/ops/attention.h"
#include "ops/function.h"

namespace hinge {

// What torch calls a type of the kernels.
template <typename S> struct TorchType { using Type = S; };
template <> struct TorchType<kernels::BFloat16> { using Type = at::BFloat16; };
template <> struct TorchType<kernels::Float16> { using Type = at::Half; };

// A tensor [B, H, L, D] as the kernels see it.
template <typename S> kernels::View<S> view(const at::Tensor& tensor) {
  using Type = typename TorchType<std::remove_const_t<S>>::Type;
  static_assert(sizeof(Type) == sizeof(S));
  return {reinterpret_cast<S*>(tensor.data_ptr<Type>()), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

// The arguments in the kernels' terms, checked.
struct AttentionProblem {
  kernels::AttentionShape shape;
  kernels::AttentionRule rule;

  // What the pointers in shape and rule point to, on the CPU: int64; float64 with Hq elements. Undefined where not given.
  at::Tensor key_lengths, q_offsets, k_offsets, num_targets;
  at::Tensor gain, bias, alpha;

  at::Tensor attn_mask;  // expanded to [B, Hq, Lq, Lk], wherever it was
};

// The options with a seed drawn where dropout needs one and none is given.
AttentionOptions with_seed(const AttentionOptions& options);

// Throws one clear error if the arguments are not a problem that attention can solve.
AttentionProblem check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options);

// out, weight_sum, weight_log, zero_share [B, Hq, Lq], skipped_share [B, Hq], lse [B, Hq, Lq]. Empty where not computed: the
// statistics unless asked for, lse unless h is softmax.
using AttentionOutputs = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// dq, dk, dv, and the gradients of gain, bias, alpha and attn_mask; these are empty unless the option is given and its gradient wanted.
using AttentionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// What comes into backward besides q, k, v. Undefined: zero, or not saved. out, lse and weight_log: for softmax, as forward gave them
// (weight_log only if it has a gradient); on CPU, out_products [B, Hq, Lq] may stand for out (kernels/attention.h).
struct AttentionBackwardInputs {
  at::Tensor grad_out, grad_weight_sum, grad_weight_log;
  at::Tensor out, lse, weight_log;
  std::array<bool, 4> wanted = {true, true, true, true};  // of the gradients of gain, bias, alpha and attn_mask
  std::array<at::Tensor, 3> into;                         // where the CPU path writes dq, dk and dv; undefined: new tensors
  at::Tensor out_products = {};
};

// bfloat16 and float16 are stored, not computed with: float32 is inside. Then q, k, v, out and their gradients have the stored type,
// statistics and lse have float32. The kernels convert what they read and write; ATen calls work on tensors of float32.
bool is_only_stored(at::ScalarType type);
at::ScalarType computed_type(at::ScalarType stored);

AttentionOutputs attention_forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options,
                                       bool statistics);
AttentionGradients attention_backward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const AttentionBackwardInputs& inputs, const AttentionOptions& options);

AttentionOutputs attention_forward_composite(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options,
                                             bool statistics);
AttentionGradients attention_backward_composite(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const AttentionBackwardInputs& inputs, const AttentionOptions& options);

// The gradient of a per-head option from one value per head: its sum if the option has one element, in the option's shape, dtype and
// device. Empty, with the options `of_none`, if `per_head` is undefined.
at::Tensor per_head_gradient(const at::Tensor& per_head, const at::Tensor& option, const at::TensorOptions& of_none);

// True if the gradient of the mask is asked for and there is one.
bool wants_mask_gradient(const AttentionBackwardInputs& inputs, const AttentionOptions& options);

// Uninitialised, [B, H, L, width] with model's B, H and L, and with memory in the order [B, L, H, width] if that is the order of model's.
at::Tensor empty_in_order_of(const at::Tensor& model, int64_t width);
inline at::Tensor empty_in_order_of(const at::Tensor& model) { return empty_in_order_of(model, model.size(3)); }

// As it is if neighbouring elements in D are adjacent, else a contiguous copy.
at::Tensor with_adjacent_width(const at::Tensor& tensor);

}  // namespace hinge
