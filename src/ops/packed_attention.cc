#include "hinge/ops/packed_attention.h"

#include "hinge/kernels/layer_norm.h"
#include "ops/attention_impl.h"
#include "ops/attention_options.h"
#include "ops/function.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- packed projections: [B, L, parts, H, D]

Tensor unpacked(const Tensor& rows, int64_t parts, int64_t heads) {
  const int64_t B = rows.dim() == 3 ? rows.size(0) : 1, L = rows.size(-2), D = rows.size(-1) / (parts * heads);
  return rows.contiguous().view({B, L, parts, heads, D});
}

// One part as attention wants it: [B, H, L, D].
Tensor part_of(const Tensor& packed, int64_t which) { return packed.select(2, which).transpose(1, 2); }

// Rows [..., H D] as [B, H, L, D].
Tensor by_head(const Tensor& rows, const Tensor& packed) {
  return rows.contiguous().view({packed.size(0), packed.size(1), packed.size(3), packed.size(4)}).transpose(1, 2);
}

// ---- norms of heads

// Where part `which` of packed projections begins, and the distance between its rows.
template <typename T> kernels::RowsView<T> heads_of(const Tensor& packed, int64_t which) {
  const int64_t width = packed.size(3) * packed.size(4);
  return {packed.data_ptr<std::remove_const_t<T>>() + which * width, packed.size(2) * width};
}

// The norms of part `which` of `from` into part `to_which` of `to`, which may be `from` itself; stats [2, B L H].
void norm_heads(const Tensor& from, int64_t which, const Tensor& weight, const Tensor& bias, double eps, const Tensor& to, int64_t to_which,
                const Tensor& stats) {
  with_type_of(from, [&](auto type) {
    using T = decltype(type);
    AtenParallel parallel;
    kernels::layer_norm_forward(
        {from.size(0) * from.size(1), from.size(3), from.size(4), eps},
        kernels::LayerNormForward<T>{heads_of<const T>(from, which), weight.data_ptr<T>(), bias.data_ptr<T>(), heads_of<T>(to, to_which),
                                     stats.data_ptr<T>(), stats.data_ptr<T>() + stats.size(1)},
        parallel);
  });
}

// Turns the gradients of normalised heads, in part `which` of grad, into those of the heads; returns those of weight and bias.
std::pair<Tensor, Tensor> norm_heads_backward(const Tensor& packed, int64_t which, const Tensor& weight, const Tensor& stats,
                                              const Tensor& grad) {
  const Tensor dw = at::empty_like(weight), db = at::empty_like(weight);
  with_type_of(packed, [&](auto type) {
    using T = decltype(type);
    AtenParallel parallel;
    kernels::layer_norm_backward({packed.size(0) * packed.size(1), packed.size(3), packed.size(4), 0},
                                 kernels::LayerNormBackward<T>{heads_of<const T>(grad, which),
                                                               heads_of<const T>(packed, which),
                                                               weight.data_ptr<T>(),
                                                               stats.data_ptr<T>(),
                                                               stats.data_ptr<T>() + stats.size(1),
                                                               {nullptr, 0},
                                                               heads_of<T>(grad, which),
                                                               dw.data_ptr<T>(),
                                                               db.data_ptr<T>()},
                                 parallel);
  });
  return {dw, db};
}

Tensor stats_for(const Tensor& packed) { return at::empty({2, packed.size(0) * packed.size(1) * packed.size(3)}, packed.options()); }

// What goes into attention, [B, H, L, D] each: the parts as they are, or with queries and keys normalised.
struct Inputs {
  Tensor q, k, v, q_stats, k_stats;

  // Of self-attention `a` holds all three parts and b is undefined; else `a` holds the queries, b keys and values.
  Inputs(const Tensor& a, const Tensor& b, const QkNorm& norm) {
    const Tensor& kv = b.defined() ? b : a;
    const int64_t key = b.defined() ? 0 : 1;
    v = part_of(kv, key + 1);
    if (!norm.defined()) {
      q = part_of(a, 0), k = part_of(kv, key);
      return;
    }
    const auto empty = [](const Tensor& like, int64_t parts) {
      return at::empty({like.size(0), like.size(1), parts, like.size(3), like.size(4)}, like.options());
    };
    const Tensor to_q = empty(a, b.defined() ? 1 : 2), to_k = b.defined() ? empty(b, 1) : to_q;
    q_stats = stats_for(a), k_stats = stats_for(kv);
    norm_heads(a, 0, norm.q_weight, norm.q_bias, norm.eps, to_q, 0, q_stats);
    norm_heads(kv, key, norm.k_weight, norm.k_bias, norm.eps, to_k, key, k_stats);
    q = part_of(to_q, 0), k = part_of(to_k, key);
  }
};

// ---- attention

// [B, H, Lq, D] and [B, H, Lq]; what was not asked for is undefined.
struct AttentionTensors {
  Tensor out, weight_sum, weight_log, lse;
};

AttentionTensors forward_of(const Tensor& q, const Tensor& k, const Tensor& v, const PackedAttentionOptions& options) {
  const AttentionProblem problem = check_attention(q, k, v, options.attention);
  const bool softmax = !options.sparse && problem.rule.h == kernels::Activation::softmax;
  const auto per_row = [&](bool wanted) { return wanted ? at::empty({q.size(0), q.size(1), q.size(2)}, q.options()) : Tensor(); };
  const AttentionTensors result{empty_in_order_of(q, v.size(3)), per_row(options.statistics), per_row(options.statistics),
                                per_row(softmax)};
  with_type_of(q, [&](auto type) {
    using T = decltype(type);
    kernels::AttentionForward<T> io;
    io.q = view<const T>(q), io.k = view<const T>(k), io.v = view<const T>(v), io.out = view<T>(result.out);
    io.weight_sum = data_or_null<T>(result.weight_sum), io.weight_log = data_or_null<T>(result.weight_log),
    io.lse = data_or_null<T>(result.lse);
    AtenParallel parallel;
    if (options.sparse)
      kernels::sparse_attention_forward(*options.sparse, problem.shape, problem.rule, io, parallel);
    else
      kernels::attention_forward(problem.shape, problem.rule, io, parallel);
  });
  return result;
}

void sparse_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs,
                     const AttentionOptions& options, kernels::SparseRule rule) {
  const AttentionProblem problem = check_attention(q, k, v, options);
  with_type_of(q, [&](auto type) {
    using T = decltype(type);
    kernels::AttentionBackward<T> io;
    io.q = view<const T>(q), io.k = view<const T>(k), io.v = view<const T>(v), io.grad_out = view<const T>(inputs.grad_out);
    io.dq = view<T>(inputs.into[0]), io.dk = view<T>(inputs.into[1]), io.dv = view<T>(inputs.into[2]);
    AtenParallel parallel;
    kernels::sparse_attention_backward(rule, problem.shape, problem.rule, io, parallel);
  });
}

// `first` holds queries, keys and values, or only the queries where `second` holds keys and values. Saves these; of softmax also what its
// backward needs of the results. Normalised heads are made again.
class PackedAttentionFunction : public torch::autograd::Function<PackedAttentionFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& first, const OptionalTensor& second, const OptionalTensor& q_weight,
                               const OptionalTensor& q_bias, const OptionalTensor& k_weight, const OptionalTensor& k_bias,
                               const OptionalTensor& /*gain*/, const OptionalTensor& /*bias*/, const OptionalTensor& /*alpha*/,
                               const PackedAttentionOptions& options, int64_t heads) {
    const Tensor a = unpacked(first, second ? 1 : 3, heads), b = second ? unpacked(*second, 2, heads) : Tensor();
    const QkNorm norm{tensor_of(q_weight), tensor_of(q_bias), tensor_of(k_weight), tensor_of(k_bias), options.norm.eps};
    const Inputs in(a, b, norm);
    const AttentionTensors r = forward_of(in.q, in.k, in.v, options);
    std::vector<int64_t> sizes = first.sizes().vec();
    sizes.back() = a.size(3) * a.size(4);
    const Tensor out = r.out.transpose(1, 2).reshape(sizes);
    const bool softmax = r.lse.defined();
    save_attention(ctx, options.attention,
                   {a, b, norm.q_weight, norm.q_bias, norm.k_weight, norm.k_bias, softmax ? out : Tensor(), r.lse,
                    softmax && options.statistics ? r.weight_log : Tensor()});
    ctx->saved_data["sparse"] = options.sparse ? at::IValue(static_cast<int64_t>(*options.sparse)) : at::IValue();
    ctx->saved_data["eps"] = options.norm.eps;
    ctx->saved_data["jagged"] = first.dim() == 2;
    ctx->set_materialize_grads(false);
    if (!options.statistics) return {out};
    return {out, r.weight_sum, r.weight_log};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::packed_attention");
    const auto [attention, wanted, saved] = saved_attention(ctx);
    const at::IValue& sparse = ctx->saved_data["sparse"];
    const Tensor &a = saved[0], &b = saved[1];
    const QkNorm norm{saved[2], saved[3], saved[4], saved[5], ctx->saved_data["eps"].toDouble()};
    const Inputs in(a, b, norm);
    const Tensor da = at::empty_like(a), db = b.defined() ? at::empty_like(b) : Tensor();

    AttentionBackwardInputs inputs;
    inputs.grad_out = grads[0].defined() ? by_head(grads[0], a) : at::zeros({a.size(4)}, a.options()).expand_as(in.q);
    if (grads.size() > 1) inputs.grad_weight_sum = grads[1], inputs.grad_weight_log = grads[2];
    if (saved[6].defined()) inputs.out = by_head(saved[6], a), inputs.lse = saved[7];
    if (inputs.grad_weight_log.defined()) inputs.weight_log = saved[8];
    inputs.wanted = wanted;
    const int64_t key = b.defined() ? 0 : 1;  // the part that the keys are
    const Tensor& dkv = b.defined() ? db : da;
    inputs.into = {part_of(da, 0), part_of(dkv, key), part_of(dkv, key + 1)};
    std::array<Tensor, 3> per_head;
    if (!sparse.isNone()) {
      sparse_backward(in.q, in.k, in.v, inputs, attention, static_cast<kernels::SparseRule>(sparse.toInt()));
    } else {
      const auto results = attention_backward_cpu(in.q, in.k, in.v, inputs, attention);
      if (wanted[0]) per_head[0] = std::get<3>(results);
      if (wanted[1]) per_head[1] = std::get<4>(results);
      if (wanted[2]) per_head[2] = std::get<5>(results);
    }
    Tensor dqw, dqb, dkw, dkb;
    if (norm.defined()) {
      std::tie(dqw, dqb) = norm_heads_backward(a, 0, norm.q_weight, in.q_stats, da);
      std::tie(dkw, dkb) = norm_heads_backward(b.defined() ? b : a, key, norm.k_weight, in.k_stats, dkv);
    }
    const bool jagged = ctx->saved_data["jagged"].toBool();
    const auto packed = [&](const Tensor& gradient) {
      if (!gradient.defined()) return Tensor();
      const int64_t width = gradient.size(2) * gradient.size(3) * gradient.size(4);
      return jagged ? gradient.view({gradient.size(1), width}) : gradient.view({gradient.size(0), gradient.size(1), width});
    };
    return {packed(da), packed(db), dqw, dqb, dkw, dkb, per_head[0], per_head[1], per_head[2], Tensor(), Tensor()};
  }
};

void check_norm(const char* op, const QkNorm& norm, int64_t D, const Tensor& x) {
  const std::array<std::pair<const char*, const Tensor*>, 4> all = {
      {{"q_weight", &norm.q_weight}, {"q_bias", &norm.q_bias}, {"k_weight", &norm.k_weight}, {"k_bias", &norm.k_bias}}};
  if (std::none_of(all.begin(), all.end(), [](const auto& one) { return one.second->defined(); })) return;
  for (const auto& [name, tensor] : all) {
    TORCH_CHECK(tensor->defined(), op, ": a norm needs weight and bias for queries and for keys; ", name, " is undefined");
    check_shape(op, name, *tensor, {D}, x);
  }
}

// What sparsemax and entmax15 can see is the first keys.
void check_sparse(const char* op, const PackedAttentionOptions& options) {
  const AttentionOptions& attention = options.attention;
  TORCH_CHECK(!options.sparse || (!attention.attn_mask.defined() && !attention.window && !attention.num_targets.defined() &&
                                  attention.max_attn_len == 0 && attention.contextual_seq_len == 0 && attention.min_full_attn_seq_len == 0),
              op, ": sparsemax and entmax15 take no attn_mask, no window and no mask of HSTU");
}

PackedAttentionResult apply_packed(const char* op, const Tensor& first, const Tensor& second, int64_t heads, int64_t D,
                                   const PackedAttentionOptions& given) {
  TORCH_CHECK(!given.sparse || !given.statistics, op, ": sparsemax and entmax15 have no differentiable statistics");
  TORCH_CHECK(!given.attention.attn_mask.defined() || !given.attention.attn_mask.requires_grad(), op,
              ": it has no gradient for attn_mask; use hinge::attention");
  check_sparse(op, given);
  check_norm(op, given.norm, D, first);
  PackedAttentionOptions options = given;
  options.attention = with_seed(given.attention);
  const AttentionOptions& attention = options.attention;
  const QkNorm& norm = given.norm;
  const variable_list r =
      PackedAttentionFunction::apply(first, optional_of(second), optional_of(norm.q_weight), optional_of(norm.q_bias),
                                     optional_of(norm.k_weight), optional_of(norm.k_bias), optional_of(attention.gain.values),
                                     optional_of(attention.bias.values), optional_of(attention.alpha.values), options, heads);
  if (!options.statistics) return {r[0], {}, {}};
  return {r[0], r[1], r[2]};
}

void check_rows(const char* op, const char* name, const Tensor& rows) {
  check_floating(op, name, rows);
  TORCH_CHECK(rows.dim() == 2 || rows.dim() == 3, op, ": ", name, " must have 3 dimensions, or 2 if it is jagged, got the shape ",
              rows.sizes());
}

}  // namespace

PackedAttentionResult packed_attention(const Tensor& qkv, int64_t heads, const PackedAttentionOptions& options) {
  constexpr const char* op = "hinge::packed_attention";
  check_rows(op, "qkv", qkv);
  TORCH_CHECK(heads > 0 && qkv.size(-1) > 0 && qkv.size(-1) % (3 * heads) == 0, op,
              ": qkv must be [B, L, 3 H D] or [L, 3 H D] with H = ", heads, ", got ", qkv.sizes());
  return apply_packed(op, qkv, {}, heads, qkv.size(-1) / (3 * heads), options);
}

PackedAttentionResult packed_attention(const Tensor& q, const Tensor& kv, int64_t heads, const PackedAttentionOptions& options) {
  constexpr const char* op = "hinge::packed_attention";
  check_rows(op, "q", q);
  check_rows(op, "kv", kv);
  TORCH_CHECK(heads > 0 && q.size(-1) > 0 && q.size(-1) % heads == 0 && kv.size(-1) == 2 * q.size(-1) && kv.dim() == q.dim() &&
                  kv.scalar_type() == q.scalar_type(),
              op, ": q must be [B, L, H D] and kv [B, S, 2 H D], or [L, H D] and [S, 2 H D], of one dtype with H = ", heads, ", got ",
              q.sizes(), " and ", kv.sizes());
  return apply_packed(op, q, kv, heads, q.size(-1) / heads, options);
}

Tensor attention_without_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const PackedAttentionOptions& given) {
  constexpr const char* op = "hinge::attention_without_gradient";
  check_floating(op, "q", q, 4);
  check_floating(op, "k", k, 4);
  check_floating(op, "v", v, 4);
  const at::NoGradGuard guard;
  PackedAttentionOptions options = given;
  options.attention = with_seed(given.attention);
  options.statistics = false;
  check_sparse(op, options);
  TORCH_CHECK(!options.sparse || q.size(1) == k.size(1), op, ": sparsemax and entmax15 need as many key heads as query heads, got ",
              k.size(1), " and ", q.size(1));
  TORCH_CHECK(!options.sparse || v.size(3) == k.size(3), op, ": sparsemax and entmax15 need values as wide as keys, got ", v.size(3),
              " and ", k.size(3));
  return forward_of(with_adjacent_width(q), with_adjacent_width(k), with_adjacent_width(v), options).out;
}

void normalise_heads_(const Tensor& packed, int64_t parts, int64_t part, int64_t heads, const Tensor& weight, const Tensor& bias,
                      double eps) {
  constexpr const char* op = "hinge::normalise_heads_";
  check_floating(op, "packed", packed, 2);
  TORCH_CHECK(parts > 0 && part >= 0 && part < parts && heads > 0 && packed.size(1) > 0 && packed.size(1) % (parts * heads) == 0 &&
                  packed.is_contiguous() && !(packed.requires_grad() && at::GradMode::is_enabled()),
              op, ": packed must be [rows, ", parts, " H D] with H = ", heads, ", contiguous and without gradients, got ", packed.sizes());
  const Tensor view = unpacked(packed, parts, heads);
  check_shape(op, "weight", weight, {view.size(4)}, packed);
  check_shape(op, "bias", bias, {view.size(4)}, packed);
  norm_heads(view, part, weight.contiguous(), bias.contiguous(), eps, view, part, stats_for(view));
}

}  // namespace hinge
