// The attention op in ATen calls, for devices without fused kernels: the same meaning, weights and masks held in memory, O(Lq Lk).
// Backward is written out (notation of kernels/reference.h), so that on every device the op saves the same and behaves the same under
// autograd and torch.compile.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hinge/kernels/dropout.h"
#include "ops/attention_impl.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::Activation;
using kernels::LengthRule;

// h and h' of every activation; an activation without them does not compile.
namespace activations {

Tensor where_true(const Tensor& condition, const Tensor& x) { return condition.to(x.scalar_type()); }

struct Relu {
  static Tensor value(const Tensor& x) { return at::relu(x); }
  static Tensor slope(const Tensor& x) { return where_true(x > 0, x); }
};
struct Relu2 {
  static Tensor value(const Tensor& x) { return at::relu(x).square(); }
  static Tensor slope(const Tensor& x) { return 2 * at::relu(x); }
};
struct Gelu {
  static Tensor value(const Tensor& x) { return at::gelu(x, "none"); }
  static Tensor slope(const Tensor& x) { return at::gelu_backward(at::ones_like(x), x, "none"); }
};
struct GeluTanh {
  static Tensor value(const Tensor& x) { return at::gelu(x, "tanh"); }
  static Tensor slope(const Tensor& x) { return at::gelu_backward(at::ones_like(x), x, "tanh"); }
};
struct Softplus {
  static Tensor value(const Tensor& x) { return at::relu(x) + at::log1p(at::exp(-x.abs())); }
  static Tensor slope(const Tensor& x) { return at::sigmoid(x); }
};
struct Identity {
  static Tensor value(const Tensor& x) { return x; }
  static Tensor slope(const Tensor& x) { return at::ones_like(x); }
};
struct Relu6 {
  static Tensor value(const Tensor& x) { return at::clamp(x, 0, 6); }
  static Tensor slope(const Tensor& x) { return where_true(at::logical_and(x > 0, x < 6), x); }
};
struct Sigmoid {
  static Tensor value(const Tensor& x) { return at::sigmoid(x); }
  static Tensor slope(const Tensor& x) { return at::sigmoid(x) * at::sigmoid(-x); }
};
struct Silu {
  static Tensor value(const Tensor& x) { return at::silu(x); }
  static Tensor slope(const Tensor& x) { return at::silu_backward(at::ones_like(x), x); }
};

}  // namespace activations

Tensor value(Activation h, const Tensor& x) {
  switch (h) {
#define HINGE_VALUE(name, cls) \
  case Activation::name: return activations::cls::value(x);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_VALUE)
#undef HINGE_VALUE
    case Activation::softmax: break;
  }
  return x;
}

Tensor slope(Activation h, const Tensor& x) {
  switch (h) {
#define HINGE_SLOPE(name, cls) \
  case Activation::name: return activations::cls::slope(x);
    HINGE_FOR_EACH_POINTWISE_ACTIVATION(HINGE_SLOPE)
#undef HINGE_SLOPE
    case Activation::softmax: break;
  }
  return x;
}

// Which keys every row sees. "Own" counts within the batch row or jagged sequence.
struct Visibility {
  Tensor visible;  // [B or 1, Hq or 1, Lq, Lk], bool
  Tensor seen;     // [B or 1, Hq or 1, Lq, 1]: how many keys row i sees
  Tensor keys;     // [Lq, 1] or scalar: how many keys row i's sequence has
  Tensor own_key;  // [Lk]: own number of key j
};

Visibility visibility(const AttentionProblem& problem, const Tensor& q) {
  const kernels::AttentionShape& shape = problem.shape;
  const at::TensorOptions integer = q.options().dtype(at::kLong);
  const Tensor i = at::arange(shape.Lq, integer).unsqueeze(1), j = at::arange(shape.Lk, integer);  // [Lq, 1], [Lk]
  const Tensor everything = at::ones({1, 1, shape.Lq, shape.Lk}, q.options().dtype(at::kBool));

  Visibility result{everything, {}, at::scalar_tensor(shape.Lk, integer), j};
  Tensor own_row = i, queries = at::scalar_tensor(shape.Lq, integer), row_sequence;
  if (problem.q_offsets.defined()) {
    const Tensor q_offsets = problem.q_offsets.to(q.device()), k_offsets = problem.k_offsets.to(q.device());
    // The sequence of a row is the number of sequences that end before it.
    row_sequence = at::bucketize(i, q_offsets.slice(0, 1), false, true);               // [Lq, 1]
    const Tensor key_sequence = at::bucketize(j, k_offsets.slice(0, 1), false, true);  // [Lk]
    const auto per_row = [&](const Tensor& of_sequence) { return of_sequence.index_select(0, row_sequence.flatten()).unsqueeze(1); };
    result.visible = (row_sequence == key_sequence).view({1, 1, shape.Lq, shape.Lk});
    result.keys = per_row(k_offsets.diff());
    result.own_key = j - k_offsets.index_select(0, key_sequence);
    own_row = i - per_row(q_offsets);
    queries = per_row(q_offsets.diff());
  } else if (problem.key_lengths.defined()) {
    result.visible = at::logical_and(everything, j < problem.key_lengths.to(q.device()).view({-1, 1, 1, 1}));
  }
  const auto hide_unless = [&](const Tensor& condition) { result.visible = at::logical_and(result.visible, condition); };
  const Tensor place = own_row + result.keys - queries;  // of row i among the keys
  if (shape.hstu.used) {
    // Per row: how many items of its sequence are no targets. Item numbers: all of the context is number 0, targets have that of the first.
    Tensor history_end = result.keys;
    if (problem.num_targets.defined()) {
      const Tensor targets = problem.num_targets.to(q.device());
      history_end = result.keys -
                    (row_sequence.defined() ? targets.index_select(0, row_sequence.flatten()).unsqueeze(1) : targets.view({-1, 1, 1, 1}));
    }
    const int64_t context = shape.hstu.contextual_seq_len, before = std::max<int64_t>(context - 1, 0);
    const auto number = [&](const Tensor& own) { return at::minimum(own, history_end).sub(before).clamp_min(0); };
    const Tensor distance = number(own_row) - number(result.own_key);
    Tensor seen = distance > 0;
    Tensor near = shape.hstu.max_attn_len > 0 ? distance <= shape.hstu.max_attn_len : Tensor();
    if (const int64_t full = shape.hstu.min_full_attn_seq_len; full > 0) near = at::logical_or(near, own_row >= history_end - full);
    if (near.defined()) seen = at::logical_and(seen, near);
    seen = at::logical_or(seen, own_row == result.own_key);
    hide_unless(at::logical_or(seen, at::logical_and(own_row < context, result.own_key < history_end)));
  } else {
    if (shape.causal || shape.window_right >= 0) hide_unless(result.own_key <= place + (shape.causal ? 0 : shape.window_right));
    if (shape.window_left >= 0) hide_unless(result.own_key >= place - shape.window_left);
  }
  if (const Tensor& mask = problem.attn_mask; mask.defined())
    hide_unless(mask.scalar_type() == at::kBool ? mask : mask != -std::numeric_limits<double>::infinity());
  result.seen = result.visible.sum(-1, /*keepdim=*/true);
  return result;
}

// N_i, at least 1 where it is a number of keys: a row that sees none is zero anyway.
Tensor row_length(const AttentionProblem& problem, const Visibility& visibility, const Tensor& q) {
  switch (problem.rule.length_rule) {
    case LengthRule::none: return at::ones({1}, q.options());
    case LengthRule::fixed: return at::full({1}, problem.rule.length_n, q.options());
    case LengthRule::keys: return visibility.keys.clamp_min(1).to(q.scalar_type());
    case LengthRule::visible: return visibility.seen.clamp_min(1).to(q.scalar_type());
  }
  return {};
}

// The 16 bits that kernels::dropout_keeps() compares with its threshold, [B, Hq, Lq, Lk], as int64.
Tensor dropout_bits(const AttentionProblem& problem, const Visibility& visibility) {
  const kernels::AttentionShape& shape = problem.shape;
  const Tensor key = visibility.own_key;
  const at::TensorOptions integer = key.options();
  constexpr int64_t kLow32 = 0xFFFFFFFF, kLow16 = 0xFFFF;

  // c0 .. c3 are the words of the counter. A product of two words is made of halves, so that int64 does not overflow.
  Tensor c0 = (at::floor_divide(key, 64) * 8 + key.remainder(8)).view({1, 1, 1, -1});
  Tensor c1 = at::arange(shape.Lq, integer).view({1, 1, -1, 1});
  Tensor c2 = at::arange(shape.B * shape.Hq, integer).view({shape.B, shape.Hq, 1, 1});
  Tensor c3 = at::zeros({1, 1, 1, 1}, integer);
  const auto multiply = [](const Tensor& word, int64_t factor) {
    const Tensor high_part = at::bitwise_right_shift(word, 16) * factor, low_part = at::bitwise_and(word, kLow16) * factor;
    const Tensor high = at::bitwise_right_shift(high_part + at::bitwise_right_shift(low_part, 16), 16);
    const Tensor low = at::bitwise_and(at::bitwise_left_shift(at::bitwise_and(high_part, kLow16), 16) + low_part, kLow32);
    return std::make_pair(high, low);
  };
  int64_t k0 = static_cast<int64_t>(problem.rule.seed & kLow32), k1 = static_cast<int64_t>(problem.rule.seed >> 32);
  for (int round = 0; round < kernels::kPhiloxRounds; ++round) {
    const auto [high0, low0] = multiply(c0, kernels::kPhiloxMul0);
    const auto [high1, low1] = multiply(c2, kernels::kPhiloxMul1);
    c0 = at::bitwise_xor(at::bitwise_xor(high1, c1), k0);
    c2 = at::bitwise_xor(at::bitwise_xor(high0, c3), k1);
    c1 = low1;
    c3 = low0;
    k0 = (k0 + kernels::kPhiloxWeyl0) & kLow32;
    k1 = (k1 + kernels::kPhiloxWeyl1) & kLow32;
  }
  const Tensor number = at::floor_divide(key.remainder(32), 8);
  const Tensor word = at::where(number == 0, c0, at::where(number == 1, c1, at::where(number == 2, c2, c3)));
  return at::where(key.remainder(64) < 32, at::bitwise_and(word, kLow16), at::bitwise_right_shift(word, 16));
}

// The weights and what is on the way to them; [B, Hq, Lq, Lk] unless said otherwise.
struct Weights {
  Visibility visibility;
  Tensor n;             // N_i, broadcasts
  Tensor length_power;  // N_i^-alpha, broadcasts
  Tensor c;             // gain N_i^-alpha, broadcasts
  Tensor x;             // scores
  Tensor h;             // h(x), 0 for hidden keys; of softmax the weight
  Tensor w;             // c h(x)
  Tensor m;             // dropout's factor; undefined without dropout
};

// Key or value heads as often as query heads read them: [B, Hq, Lk, D or Dv]. Zeros in place of padding, which may hold anything (0 * NaN
// would be NaN).
Tensor for_query_heads(const Tensor& tensor, const AttentionProblem& problem) {
  const kernels::AttentionShape& shape = problem.shape;
  const Tensor heads = shape.Hq == shape.Hkv ? tensor : tensor.repeat_interleave(shape.Hq / shape.Hkv, 1);
  if (!problem.key_lengths.defined()) return heads;
  const Tensor j = at::arange(shape.Lk, tensor.options().dtype(at::kLong)).unsqueeze(1);  // [Lk, 1]
  return heads.masked_fill(j >= problem.key_lengths.to(tensor.device()).view({-1, 1, 1, 1}), 0);
}

// a @ b, a [..., R, S] with zeros where `visible` is false, b [..., S, D]. What row r does not see does not show in it (0 * NaN would be
// NaN), unless the row sees something that is not finite itself: then it may be NaN instead of infinite.
Tensor product_of_visible(const AttentionProblem& problem, const Tensor& a, const Tensor& visible, const Tensor& b) {
  const bool hides = problem.shape.causal || problem.key_lengths.defined() || problem.q_offsets.defined() || problem.attn_mask.defined() ||
                     problem.shape.window_left >= 0 || problem.shape.window_right >= 0;
  const Tensor finite = hides ? at::isfinite(b) : Tensor();
  if (!hides || finite.all().item<bool>()) return at::matmul(a, b);
  const Tensor seen = at::matmul(visible.to(a.scalar_type()), finite.logical_not().to(a.scalar_type())) > 0;
  return at::where(seen, at::matmul(a, b), at::matmul(a, b.masked_fill(finite.logical_not(), 0)));
}

Tensor dropped(const Tensor& tensor, const Tensor& m) { return m.defined() ? tensor * m : tensor; }

Weights weights(const AttentionProblem& problem, const Tensor& q, const Tensor& k) {
  const kernels::AttentionRule& rule = problem.rule;
  Weights r;
  r.visibility = visibility(problem, q);
  const Tensor& visible = r.visibility.visible;
  const auto per_head = [&](const Tensor& values) { return values.to(q.device(), q.scalar_type()).view({1, -1, 1, 1}); };
  r.x = at::matmul(q, for_query_heads(k, problem).transpose(2, 3)) * rule.scale;
  if (const Tensor& mask = problem.attn_mask; mask.defined() && mask.scalar_type() != at::kBool) r.x = r.x + mask.to(q.scalar_type());
  if (rule.h == Activation::softmax) {
    // A row that sees nothing is NaN here and zero in the next line.
    const Tensor masked = at::where(visible, r.x, at::full({}, -std::numeric_limits<double>::infinity(), q.options()));
    r.w = at::where(visible, at::softmax(masked, -1), at::zeros({}, q.options()));
    r.h = r.w;
    r.c = at::ones({1}, q.options());
  } else {
    r.n = row_length(problem, r.visibility, q);
    r.length_power = problem.alpha.defined() ? at::pow(r.n, -per_head(problem.alpha)) : r.n.reciprocal();
    r.c = problem.gain.defined() ? r.length_power * per_head(problem.gain) : r.length_power;
    if (problem.bias.defined()) r.x = r.x + per_head(problem.bias);
    if (rule.bias_log_n) r.x = r.x - at::log(r.n);
    r.h = at::where(visible, value(rule.h, r.x), at::zeros({}, q.options()));
    r.w = r.c * r.h;
  }
  if (rule.dropout > 0) {
    const Tensor kept = dropout_bits(problem, r.visibility) >= static_cast<int64_t>(kernels::dropout_threshold(rule.dropout));
    r.m = kept.to(q.scalar_type()) * kernels::dropout_scale(rule.dropout);
  }
  return r;
}

// log |tensor|, and 0 in place of the log of zero.
Tensor log_abs(const Tensor& tensor) { return at::log(tensor.abs().masked_fill(tensor == 0, 1)); }

// [B, Hq, Lk, D] to [B, Hkv, Lk, D], in the memory order of the model.
Tensor sum_over_groups(const Tensor& tensor, const Tensor& model) {
  const int64_t Hkv = model.size(1);
  const Tensor sum = tensor.size(1) == Hkv ? tensor : tensor.unflatten(1, {Hkv, tensor.size(1) / Hkv}).sum(2);
  return empty_in_order_of(model).copy_(sum);
}

// What is only stored, as tensors of float32 and back.
AttentionOutputs computed_in_float32(decltype(attention_forward_composite)* forward, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOptions& options, bool statistics) {
  check_attention(q, k, v, options);
  AttentionOutputs results = forward(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), options, statistics);
  std::get<0>(results) = std::get<0>(results).to(q.scalar_type());
  return results;
}

AttentionGradients computed_in_float32(decltype(attention_backward_composite)* backward, const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const AttentionBackwardInputs& inputs, const AttentionOptions& options) {
  check_attention(q, k, v, options);
  AttentionBackwardInputs wide = inputs;
  for (at::Tensor* tensor : {&wide.grad_out, &wide.out})
    if (tensor->defined()) *tensor = tensor->to(at::kFloat);
  AttentionGradients results = backward(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), wide, options);
  for (at::Tensor* tensor : {&std::get<0>(results), &std::get<1>(results), &std::get<2>(results)}) *tensor = tensor->to(q.scalar_type());
  return results;
}

}  // namespace

AttentionOutputs attention_forward_composite(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                             bool statistics) {
  if (is_only_stored(q.scalar_type())) return computed_in_float32(attention_forward_composite, q, k, v, options, statistics);
  const AttentionProblem problem = check_attention(q, k, v, options);
  const Weights r = weights(problem, q, k);
  const Tensor& visible = r.visibility.visible;
  const Tensor out = empty_in_order_of(q, v.size(3))
                         .copy_(product_of_visible(problem, dropped(r.w, r.m), visible, for_query_heads(v, problem)));  // [B, Hq, Lq, Dv]
  const Tensor none = at::empty({0}, q.options());
  Tensor lse = none.clone();
  if (problem.rule.h == Activation::softmax)
    lse = at::logsumexp(at::where(visible, r.x, at::full({}, -std::numeric_limits<double>::infinity(), q.options())), -1);
  if (!statistics) return {out, none.clone(), none.clone(), none.clone(), none.clone(), lse};

  const Tensor zeros = at::logical_and(r.h == 0, visible).sum(-1).to(q.scalar_type());
  return {out,
          r.w.sum(-1),
          (r.w * (log_abs(r.c) + log_abs(r.h))).sum(-1),
          zeros / r.visibility.seen.squeeze(-1).clamp_min(1).to(q.scalar_type()),
          at::zeros({problem.shape.B, problem.shape.Hq}, q.options()),
          lse};
}

AttentionGradients attention_backward_composite(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs,
                                                const AttentionOptions& options) {
  if (is_only_stored(q.scalar_type())) return computed_in_float32(attention_backward_composite, q, k, v, inputs, options);
  const AttentionProblem problem = check_attention(q, k, v, options);
  const kernels::AttentionRule& rule = problem.rule;
  const Weights r = weights(problem, q, k);
  const Tensor& visible = r.visibility.visible;
  const Tensor grad_out =
      inputs.grad_out.defined() ? inputs.grad_out : at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());

  Tensor G = dropped(at::matmul(grad_out, for_query_heads(v, problem).transpose(2, 3)), r.m);
  if (inputs.grad_weight_sum.defined()) G = G + inputs.grad_weight_sum.unsqueeze(-1);
  if (inputs.grad_weight_log.defined())
    G = G + inputs.grad_weight_log.unsqueeze(-1) * (log_abs(r.c) + log_abs(r.h) + 1).masked_fill(r.h == 0, 0);
  G = at::where(visible, G, at::zeros({}, q.options()));

  const Tensor seen_by = visible.transpose(2, 3);
  const Tensor dv = product_of_visible(problem, dropped(r.w, r.m).transpose(2, 3), seen_by, grad_out);
  const Tensor dx =
      at::where(visible, rule.h == Activation::softmax ? r.w * (G - (r.w * G).sum(-1, /*keepdim=*/true)) : r.c * slope(rule.h, r.x) * G,
                at::zeros({}, q.options()));
  const Tensor dq = product_of_visible(problem, dx, visible, for_query_heads(k, problem)) * rule.scale;
  const Tensor dk = product_of_visible(problem, dx.transpose(2, 3), seen_by, q) * rule.scale;

  const auto per_head = [&](const Tensor& option, bool wanted, auto&& gradient) {
    return option.defined() && wanted ? gradient().sum({0, 2, 3}) : Tensor();
  };
  return {empty_in_order_of(q).copy_(dq),
          sum_over_groups(dk, k),
          sum_over_groups(dv, v),
          per_head_gradient(per_head(problem.gain, inputs.wanted[0], [&] { return r.length_power * r.h * G; }), options.gain.values,
                            q.options()),
          per_head_gradient(per_head(problem.bias, inputs.wanted[1], [&] { return dx; }), options.bias.values, q.options()),
          per_head_gradient(per_head(problem.alpha, inputs.wanted[2], [&] { return -at::log(r.n) * r.w * G; }), options.alpha.values,
                            q.options()),
          wants_mask_gradient(inputs, options) ? at::sum_to(dx, options.attn_mask.sizes()).to(options.attn_mask.scalar_type())
                                               : at::empty({0}, q.options())};
}

}  // namespace hinge
