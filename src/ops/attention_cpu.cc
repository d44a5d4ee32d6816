// The attention op on CPU tensors: memory for the results, then the fused kernels.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "ops/attention_impl.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

static_assert(sizeof(kernels::SkipCount) == 2 * sizeof(int64_t) && std::is_standard_layout_v<kernels::SkipCount>,
              "an int64 tensor [..., 2] holds SkipCounts");

// Memory for the results of a problem that is stored as S and computed in T.
template <typename S, typename T>
AttentionOutputs forward(const AttentionProblem& problem, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         bool statistics) {
  const kernels::AttentionShape& shape = problem.shape;
  const at::Tensor q = with_adjacent_width(query), k = with_adjacent_width(key), v = with_adjacent_width(value);
  const at::TensorOptions computed = q.options().dtype(computed_type(q.scalar_type()));
  const auto per_row = [&](bool asked) { return asked ? at::empty({shape.B, shape.Hq, shape.Lq}, computed) : at::empty({0}, computed); };
  const at::Tensor out = empty_in_order_of(query, shape.value_width()), weight_sum = per_row(statistics), weight_log = per_row(statistics),
                   zero_share = per_row(statistics), lse = per_row(problem.rule.h == kernels::Activation::softmax);
  const at::Tensor skipped = statistics ? at::zeros({shape.B, shape.Hq, 2}, at::kLong) : at::Tensor();

  kernels::AttentionForward<S, T> io;
  io.q = view<const S>(q);
  io.k = view<const S>(k);
  io.v = view<const S>(v);
  io.out = view<S>(out);
  io.weight_sum = data_or_null<T>(weight_sum);
  io.weight_log = data_or_null<T>(weight_log);
  io.zero_share = data_or_null<T>(zero_share);
  io.lse = data_or_null<T>(lse);
  io.skipped = reinterpret_cast<kernels::SkipCount*>(data_or_null<int64_t>(skipped));
  AtenParallel parallel;
  kernels::attention_forward(shape, problem.rule, io, parallel);

  const at::Tensor skipped_share =
      statistics ? (skipped.select(2, 1).to(at::kDouble) / skipped.select(2, 0).clamp_min(1)).to(computed) : at::empty({0}, computed);
  return {out, weight_sum, weight_log, zero_share, skipped_share, lse};
}

// What the kernels sum the gradient of a mask to: its own sizes, but never over rows and keys at once.
std::array<int64_t, 4> mask_gradient_sizes(const at::Tensor& mask, const kernels::AttentionShape& shape) {
  std::array<int64_t, 4> sizes = {1, 1, 1, 1};
  std::copy(mask.sizes().begin(), mask.sizes().end(), sizes.end() - mask.dim());
  if (sizes[2] == 1 && sizes[3] == 1) sizes[2] = shape.Lq;
  return sizes;
}

template <typename S, typename T>
AttentionGradients backward(const AttentionProblem& problem, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionBackwardInputs& inputs, const AttentionOptions& options) {
  const kernels::AttentionShape& shape = problem.shape;
  const at::Tensor q = with_adjacent_width(query), k = with_adjacent_width(key), v = with_adjacent_width(value);
  const at::TensorOptions computed = q.options().dtype(computed_type(q.scalar_type()));
  const auto memory_for = [&](size_t which, const at::Tensor& input) {
    return inputs.into[which].defined() ? inputs.into[which] : empty_in_order_of(input);
  };
  const at::Tensor dq = memory_for(0, query), dk = memory_for(1, key), dv = memory_for(2, value);
  const auto per_head = [&](const at::Tensor& option, bool wanted) {
    return option.defined() && wanted ? at::empty({shape.Hq}, at::kDouble) : at::Tensor();
  };
  const at::Tensor dgain = per_head(problem.gain, inputs.wanted[0]), dbias = per_head(problem.bias, inputs.wanted[1]),
                   dalpha = per_head(problem.alpha, inputs.wanted[2]);

  const at::Tensor grad_out =
      inputs.grad_out.defined() ? with_adjacent_width(inputs.grad_out)
                                : at::zeros({shape.value_width()}, q.options()).expand({shape.B, shape.Hq, shape.Lq, shape.value_width()});
  const auto per_row = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : at::Tensor(); };
  const at::Tensor grad_weight_sum = per_row(inputs.grad_weight_sum), grad_weight_log = per_row(inputs.grad_weight_log);

  kernels::AttentionBackward<S, T> io;
  io.q = view<const S>(q);
  io.k = view<const S>(k);
  io.v = view<const S>(v);
  io.grad_out = view<const S>(grad_out);
  io.grad_weight_sum = data_or_null<T>(grad_weight_sum);
  io.grad_weight_log = data_or_null<T>(grad_weight_log);
  at::Tensor out, out_products, lse, weight_log;
  if (problem.rule.h == kernels::Activation::softmax) {
    TORCH_CHECK((inputs.out.defined() || inputs.out_products.defined()) && inputs.lse.defined() &&
                    (inputs.weight_log.defined() || !grad_weight_log.defined()),
                "hinge::attention_backward: softmax needs out and lse of the forward pass, and weight_log with grad_weight_log");
    lse = inputs.lse.contiguous();
    weight_log = per_row(inputs.weight_log);
    if (inputs.out_products.defined()) {
      out_products = inputs.out_products.contiguous();
      io.out_products = data_or_null<T>(out_products);
    } else {
      out = with_adjacent_width(inputs.out);
      io.out = view<const S>(out);
    }
    io.lse = data_or_null<T>(lse);
    io.weight_log = data_or_null<T>(weight_log);
  }
  io.dq = view<S>(dq);
  io.dk = view<S>(dk);
  io.dv = view<S>(dv);
  io.dgain = data_or_null<double>(dgain);
  io.dbias = data_or_null<double>(dbias);
  io.dalpha = data_or_null<double>(dalpha);
  at::Tensor dmask;
  if (wants_mask_gradient(inputs, options)) {
    dmask = at::zeros(mask_gradient_sizes(options.attn_mask, shape), computed);
    const at::Tensor expanded = dmask.expand({shape.B, shape.Hq, shape.Lq, shape.Lk});
    io.dmask = {data_or_null<T>(dmask), expanded.stride(0), expanded.stride(1), expanded.stride(2), expanded.stride(3)};
  }
  AtenParallel parallel;
  kernels::attention_backward(shape, problem.rule, io, parallel);

  return {dq,
          dk,
          dv,
          per_head_gradient(dgain, options.gain.values, computed),
          per_head_gradient(dbias, options.bias.values, computed),
          per_head_gradient(dalpha, options.alpha.values, computed),
          dmask.defined() ? at::sum_to(dmask, options.attn_mask.sizes()).to(options.attn_mask.scalar_type()) : at::empty({0}, computed)};
}

// Calls f with values of the type that is stored and of the type that is computed with.
template <class F> auto with_types(at::ScalarType stored, const F& f) {
  switch (stored) {
    case at::kBFloat16: return f(kernels::BFloat16(), float());
    case at::kHalf: return f(kernels::Float16(), float());
    case at::kFloat: return f(float(), float());
    default: return f(double(), double());
  }
}

void check_backward_input(const char* name, const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type) {
  TORCH_CHECK(!tensor.defined() || (tensor.sizes() == sizes && tensor.scalar_type() == type), "hinge::attention_backward: ", name,
              " must have the shape ", sizes, " and, to fit the query, the dtype ", type, ", got ", tensor.sizes(), " and ",
              tensor.scalar_type());
}

}  // namespace

AttentionOutputs attention_forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options,
                                       bool statistics) {
  const AttentionProblem problem = check_attention(q, k, v, options);
  return with_types(q.scalar_type(), [&]<typename S, typename T>(S, T) { return forward<S, T>(problem, q, k, v, statistics); });
}

AttentionGradients attention_backward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const AttentionBackwardInputs& inputs, const AttentionOptions& options) {
  const AttentionProblem problem = check_attention(q, k, v, options);
  const at::ScalarType stored = q.scalar_type(), computed = computed_type(stored);
  const at::IntArrayRef per_row = q.sizes().slice(0, 3);
  const std::array<int64_t, 4> out_sizes = {q.size(0), q.size(1), q.size(2), v.size(3)};
  check_backward_input("grad_out", inputs.grad_out, out_sizes, stored);
  check_backward_input("grad_weight_sum", inputs.grad_weight_sum, per_row, computed);
  check_backward_input("grad_weight_log", inputs.grad_weight_log, per_row, computed);
  check_backward_input("out", inputs.out, out_sizes, stored);
  check_backward_input("out_products", inputs.out_products, per_row, computed);
  check_backward_input("lse", inputs.lse, per_row, computed);
  check_backward_input("weight_log", inputs.weight_log, per_row, computed);
  return with_types(stored, [&]<typename S, typename T>(S, T) { return backward<S, T>(problem, q, k, v, inputs, options); });
}

}  // namespace hinge
