#include "hinge/ops/memory.h"

#include "hinge/kernels/row_regulariser.h"
#include "hinge/kernels/slot_scores.h"
#include "hinge/kernels/sparse_attention.h"
#include "ops/attention_impl.h"
#include "ops/function.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::Activation;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- local memories

kernels::SparseRule sparse_rule(Read read) {
  return read == Read::sparsemax ? kernels::SparseRule::sparsemax : kernels::SparseRule::entmax15;
}

// What a read gives, [B, H, Lq, D] and [B, H, Lq]; what is not there is undefined.
struct ReadResult {
  Tensor out, weight_sum, weight_log, lse;
};

template <typename T> ReadResult read_forward(const Tensor& q, const Tensor& k, const Tensor& v, const ReadOptions& options) {
  const AttentionProblem problem = check_attention(q, k, v, options.attention);
  const bool softmax = options.read == Read::engine && problem.rule.h == Activation::softmax;
  const auto per_row = [&](bool wanted) { return wanted ? at::empty({q.size(0), q.size(1), q.size(2)}, q.options()) : Tensor(); };
  const ReadResult result{empty_in_order_of(q), per_row(options.statistics), per_row(options.statistics), per_row(softmax)};
  kernels::AttentionForward<T> io;
  io.q = view<const T>(q), io.k = view<const T>(k), io.v = view<const T>(v), io.out = view<T>(result.out);
  io.weight_sum = data_of<T>(result.weight_sum), io.weight_log = data_of<T>(result.weight_log), io.lse = data_of<T>(result.lse);
  AtenParallel parallel;
  if (options.read == Read::engine)
    kernels::attention_forward(problem.shape, problem.rule, io, parallel);
  else
    kernels::sparse_attention_forward(sparse_rule(options.read), problem.shape, problem.rule, io, parallel);
  return result;
}

ReadResult read_forward(const Tensor& q, const Tensor& k, const Tensor& v, const ReadOptions& options) {
  return with_type_of(q, [&](auto type) { return read_forward<decltype(type)>(q, k, v, options); });
}

template <typename T>
void sparse_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionBackwardInputs& inputs, const ReadOptions& options) {
  const AttentionProblem problem = check_attention(q, k, v, options.attention);
  kernels::AttentionBackward<T> io;
  io.q = view<const T>(q), io.k = view<const T>(k), io.v = view<const T>(v), io.grad_out = view<const T>(inputs.grad_out);
  io.dq = view<T>(inputs.into[0]), io.dk = view<T>(inputs.into[1]), io.dv = view<T>(inputs.into[2]);
  AtenParallel parallel;
  kernels::sparse_attention_backward(sparse_rule(options.read), problem.shape, problem.rule, io, parallel);
}

// Part `which` of the packed rows [L, parts, H, D], as attention wants it: [1, H, L, D].
Tensor rows_part(const Tensor& packed, int64_t which) { return packed.select(1, which).transpose(0, 1).unsqueeze(0); }

// What saved_data cannot hold field by field.
struct SavedRead : torch::CustomClassHolder {
  ReadOptions options;
  std::array<bool, 3> wanted = {};
};

// `first` are the packed queries, keys and values [T, 3 H D], or the queries [T, H D] of the packed keys and values `second` [S, 2 H D].
// Saves the inputs; of softmax also what its backward needs of the results.
class ReadFunction : public torch::autograd::Function<ReadFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& first, const OptionalTensor& second, const OptionalTensor& gain,
                               const OptionalTensor& bias, const OptionalTensor& alpha, const ReadOptions& options, int64_t heads) {
    const Tensor a = packed(first, heads, second ? 1 : 3), b = second ? packed(*second, heads, 2) : Tensor();
    const auto [q, k, v] = parts_of(a, b);
    const ReadResult r = read_forward(q, k, v, options);
    const Tensor out = r.out.transpose(1, 2).reshape({first.size(0), -1});
    ctx->save_for_backward(
        {a, b, r.lse.defined() ? out : Tensor(), r.lse, r.lse.defined() && options.statistics ? r.weight_log : Tensor()});
    auto saved = c10::make_intrusive<SavedRead>();
    saved->options = options;
    AttentionOptions& kept = saved->options.attention;
    for (PerHead* values : {&kept.gain, &kept.bias, &kept.alpha})
      if (values->values.defined()) values->values = values->values.detach();
    const auto wanted = [](const OptionalTensor& tensor) { return tensor.has_value() && tensor->requires_grad(); };
    saved->wanted = {wanted(gain), wanted(bias), wanted(alpha)};
    ctx->saved_data["read"] = at::IValue::make_capsule(std::move(saved));
    ctx->set_materialize_grads(false);
    if (!options.statistics) return {out};
    return {out, r.weight_sum, r.weight_log};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::read_memory");
    const variable_list saved = ctx->get_saved_variables();
    const auto read = c10::static_intrusive_pointer_cast<SavedRead>(ctx->saved_data["read"].toCapsule());
    const Tensor &a = saved[0], &b = saved[1];
    const Tensor da = at::empty_like(a), db = b.defined() ? at::empty_like(b) : Tensor();
    const auto [q, k, v] = parts_of(a, b);
    const int64_t T = a.size(0), H = a.size(2), D = a.size(3);
    const auto by_head = [&](const Tensor& rows) { return rows.contiguous().view({T, H, D}).transpose(0, 1).unsqueeze(0); };
    AttentionBackwardInputs inputs;
    inputs.grad_out = grads[0].defined() ? by_head(grads[0]) : at::zeros({D}, a.options()).expand({1, H, T, D});
    if (grads.size() > 1) inputs.grad_weight_sum = grads[1], inputs.grad_weight_log = grads[2];
    if (saved[2].defined()) inputs.out = by_head(saved[2]), inputs.lse = saved[3];
    if (inputs.grad_weight_log.defined()) inputs.weight_log = saved[4];
    inputs.wanted = read->wanted;
    std::tie(inputs.into[0], inputs.into[1], inputs.into[2]) = parts_of(da, db);
    Tensor dgain, dbias, dalpha;
    if (read->options.read == Read::engine) {
      const auto results = attention_backward_cpu(q, k, v, inputs, read->options.attention);
      if (read->wanted[0]) dgain = std::get<3>(results);
      if (read->wanted[1]) dbias = std::get<4>(results);
      if (read->wanted[2]) dalpha = std::get<5>(results);
    } else {
      with_type_of(q, [&, &q = q, &k = k, &v = v](auto type) { sparse_backward<decltype(type)>(q, k, v, inputs, read->options); });
    }
    return {da.view({T, -1}), db.defined() ? db.view({db.size(0), -1}) : Tensor(), dgain, dbias, dalpha, Tensor(), Tensor()};
  }

 private:
  static Tensor packed(const Tensor& rows, int64_t heads, int64_t parts) {
    return rows.contiguous().view({rows.size(0), parts, heads, rows.size(1) / (parts * heads)});
  }
  static std::tuple<Tensor, Tensor, Tensor> parts_of(const Tensor& a, const Tensor& b) {
    if (!b.defined()) return {rows_part(a, 0), rows_part(a, 1), rows_part(a, 2)};
    return {rows_part(a, 0), rows_part(b, 0), rows_part(b, 1)};
  }
};

void check_read(const char* op, const ReadOptions& options) {
  TORCH_CHECK(options.read == Read::engine || !options.statistics, op, ": sparsemax and entmax15 have no differentiable statistics");
}

MemoryRead read_packed(const Tensor& first, const Tensor& second, int64_t heads, const ReadOptions& given) {
  ReadOptions options = given;
  options.attention = with_seed(given.attention);
  const AttentionOptions& attention = options.attention;
  const variable_list r = ReadFunction::apply(first, optional_of(second), optional_of(attention.gain.values),
                                              optional_of(attention.bias.values), optional_of(attention.alpha.values), options, heads);
  if (!options.statistics) return {r[0], {}, {}};
  return {r[0], r[1], r[2]};
}

// ---- global memories

// Keeps x, and of the scores what kernels/slot_scores.h says.
class GlobalReadFunction : public torch::autograd::Function<GlobalReadFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& keys, const Tensor& key_bias, const Tensor& values,
                        const OptionalTensor& value_bias, const OptionalTensor& residual, int64_t phi, double dropout, int64_t seed,
                        bool for_backward) {
    const auto activation = static_cast<Activation>(phi);
    const Tensor rows = x.contiguous(), k = keys.contiguous(), v = values.contiguous();
    const Tensor u = at::empty({rows.size(0), k.size(0)}, x.options());
    linear_into(rows, k, key_bias.contiguous(), {}, u);
    const Tensor scores = !for_backward || keeps_scores(activation, dropout) ? u : at::empty_like(u);
    with_type_of(u, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::slot_scores_forward(
          activation,
          kernels::SlotScoresForward<T>{
              u.size(0), u.size(1), u.data_ptr<T>(), scores.data_ptr<T>(), u.data_ptr<T>(), {dropout, static_cast<uint64_t>(seed)}},
          parallel);
    });
    const Tensor y = at::empty({rows.size(0), v.size(0)}, x.options());
    linear_into(scores, v, tensor_of(value_bias), tensor_of(residual), y);
    if (for_backward) ctx->save_for_backward({rows, k, v, u});
    ctx->saved_data["phi"] = phi;
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["seed"] = seed;
    ctx->saved_data["value_bias"] = value_bias.has_value();
    ctx->saved_data["residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::read_global_memory");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &keys = saved[1], &values = saved[2], &kept = saved[3];
    const auto phi = static_cast<Activation>(ctx->saved_data["phi"].toInt());
    const double dropout = ctx->saved_data["dropout"].toDouble();
    const auto seed = static_cast<uint64_t>(ctx->saved_data["seed"].toInt());
    const Tensor grad = grads[0].contiguous();
    const Tensor du = product(grad, values);  // the gradient of the scores, until the kernel ran
    const bool made_anew = !keeps_scores(phi, dropout);
    const Tensor scores = made_anew ? at::empty_like(kept) : kept, key_bias = at::empty({keys.size(0)}, x.options());
    with_type_of(x, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::slot_scores_backward(phi,
                                    kernels::SlotScoresBackward<T>{kept.size(0),
                                                                   kept.size(1),
                                                                   kept.data_ptr<T>(),
                                                                   du.data_ptr<T>(),
                                                                   du.data_ptr<T>(),
                                                                   made_anew ? scores.data_ptr<T>() : nullptr,
                                                                   key_bias.data_ptr<T>(),
                                                                   {dropout, seed}},
                                    parallel);
    });
    Tensor dx, value_bias;
    if (ctx->needs_input_grad(0)) dx = product(du, keys);
    if (ctx->saved_data["value_bias"].toBool()) value_bias = column_sums(grad);
    return {dx,         transposed_product(du, x),
            key_bias,   transposed_product(grad, scores),
            value_bias, ctx->saved_data["residual"].toBool() ? grads[0] : Tensor(),
            Tensor(),   Tensor(),
            Tensor(),   Tensor()};
  }

 private:
  // What is kept for backward are the scores themselves, made in place; of the others it is what they were made of.
  static bool keeps_scores(Activation phi, double dropout) {
    return phi == Activation::relu || (phi == Activation::softmax && dropout == 0);
  }
};

// ---- regulariser

class RegulariserFunction : public torch::autograd::Function<RegulariserFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible,
                        bool for_backward) {
    const Tensor sum = weight_sum.contiguous(), log = weight_log.contiguous(), n = visible.contiguous();
    const Tensor dsum = for_backward ? at::empty_like(sum) : Tensor(), dlog = for_backward ? at::empty_like(log) : Tensor();
    const double value = with_type_of(sum, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      return kernels::regulariser_rows(
          kernels::RegulariserRows<T>{sum.size(1), sum.size(2), sum.data_ptr<T>(), log.data_ptr<T>(), n.data_ptr<double>(),
                                      static_cast<double>(std::max<int64_t>(sum.numel(), 1)), data_of<T>(dsum), data_of<T>(dlog)},
          parallel);
    });
    if (for_backward) ctx->save_for_backward({dsum, dlog});
    return at::full({}, value, sum.options());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::reluformer_regulariser");
    const variable_list saved = ctx->get_saved_variables();
    return {saved[0] * grads[0], saved[1] * grads[0], Tensor(), Tensor()};
  }
};

}  // namespace

MemoryRead read_memory(const Tensor& qkv, int64_t heads, const ReadOptions& options) {
  constexpr const char* op = "hinge::read_memory";
  check_floating(op, "qkv", qkv, 2);
  TORCH_CHECK(heads > 0 && qkv.size(1) % (3 * heads) == 0, op, ": qkv must be [T, 3 H D] with H = ", heads, ", got ", qkv.sizes());
  check_read(op, options);
  return read_packed(qkv, {}, heads, options);
}

MemoryRead read_memory(const Tensor& q, const Tensor& kv, int64_t heads, const ReadOptions& options) {
  constexpr const char* op = "hinge::read_memory";
  check_floating(op, "q", q, 2);
  check_floating(op, "kv", kv, 2);
  TORCH_CHECK(heads > 0 && q.size(1) % heads == 0 && kv.size(1) == 2 * q.size(1) && kv.scalar_type() == q.scalar_type(), op,
              ": q must be [T, H D] and kv [S, 2 H D] of one dtype with H = ", heads, ", got ", q.sizes(), " and ", kv.sizes());
  check_read(op, options);
  return read_packed(q, kv, heads, options);
}

Tensor read_without_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const ReadOptions& given) {
  constexpr const char* op = "hinge::read_without_gradient";
  check_floating(op, "q", q, 4);
  check_floating(op, "k", k, 4);
  check_floating(op, "v", v, 4);
  const at::NoGradGuard guard;
  ReadOptions options = given;
  options.attention = with_seed(given.attention);
  options.statistics = false;
  TORCH_CHECK(options.read == Read::engine || q.size(1) == k.size(1), op,
              ": sparsemax and entmax15 need as many key heads as query heads, got ", k.size(1), " and ", q.size(1));
  return read_forward(with_adjacent_width(q), with_adjacent_width(k), with_adjacent_width(v), options).out;
}

Tensor read_global_memory(Activation phi, const Tensor& x, const Tensor& keys, const Tensor& key_bias, const Tensor& values,
                          const Tensor& value_bias, const Tensor& residual, double dropout, int64_t seed) {
  constexpr const char* op = "hinge::read_global_memory";
  if (x.defined() && x.dim() > 2) {
    TORCH_CHECK(
        !residual.defined() || (residual.dim() == x.dim() && residual.sizes().slice(0, x.dim() - 1) == x.sizes().slice(0, x.dim() - 1)), op,
        ": residual must have the rows of x ", x.sizes(), ", got ", residual.sizes());
    const Tensor skip = residual.defined() ? residual.flatten(0, -2) : residual;
    const Tensor y = read_global_memory(phi, x.flatten(0, -2), keys, key_bias, values, value_bias, skip, dropout, seed);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = y.size(1);
    return y.view(sizes);
  }
  check_floating(op, "x", x, 2);
  check_floating(op, "keys", keys, 2);
  check_floating(op, "values", values, 2);
  TORCH_CHECK(x.size(1) == keys.size(1) && keys.size(0) == values.size(1) && keys.size(0) > 0, op,
              ": x [T, C], keys [W, C] and values [N, W] do not fit: ", x.sizes(), ", ", keys.sizes(), " and ", values.sizes());
  check_shape(op, "keys", keys, keys.sizes(), x);
  check_shape(op, "values", values, values.sizes(), x);
  check_shape(op, "key_bias", key_bias, {keys.size(0)}, x);
  if (value_bias.defined()) check_shape(op, "value_bias", value_bias, {values.size(0)}, x);
  if (residual.defined()) check_shape(op, "residual", residual, {x.size(0), values.size(0)}, x);
  check_dropout(op, dropout);
  return GlobalReadFunction::apply(x, keys, key_bias, values, optional_of(value_bias), optional_of(residual), static_cast<int64_t>(phi),
                                   dropout, seed, any_wants_gradient({x, keys, key_bias, values, value_bias, residual}));
}

Tensor visible_slots(const Tensor& readers, const Tensor& slots, bool causal) {
  constexpr const char* op = "hinge::visible_slots";
  check_integers(op, "readers", readers, -1);
  check_integers(op, "slots", slots, readers.numel());
  check_offsets(op, "readers", readers);
  check_offsets(op, "slots", slots);
  const Tensor q = readers.contiguous(), k = slots.contiguous();
  const int64_t sequences = q.numel() - 1;
  const Tensor visible = at::empty({q[sequences].item<int64_t>()}, at::kDouble);
  kernels::visible_slots(q.data_ptr<int64_t>(), k.data_ptr<int64_t>(), sequences, causal, visible.data_ptr<double>());
  return visible;
}

Tensor reluformer_regulariser(const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible) {
  constexpr const char* op = "hinge::reluformer_regulariser";
  check_floating(op, "weight_sum", weight_sum, 3);
  check_shape(op, "weight_log", weight_log, weight_sum.sizes(), weight_sum);
  TORCH_CHECK(weight_sum.size(0) == 1 && visible.defined() && visible.scalar_type() == at::kDouble && visible.dim() == 1 &&
                  visible.size(0) == weight_sum.size(2),
              op, ": weight_sum must be [1, H, T] and visible float64 [T], got ", weight_sum.sizes(), " and ", visible.sizes());
  return RegulariserFunction::apply(weight_sum, weight_log, visible, any_wants_gradient({weight_sum, weight_log}));
}

}  // namespace hinge
