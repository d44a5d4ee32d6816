#include "hinge/ops/regulariser.h"

#include <torch/library.h>

#include <tuple>

#include "ops/attention_options.h"
#include "ops/function.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "hinge::reluformer_regulariser";

void check_regulariser(const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible) {
  check_floating(kOp, "weight_sum", weight_sum, 3);
  check_shape(kOp, "weight_log", weight_log, weight_sum.sizes(), weight_sum);
  TORCH_CHECK(weight_sum.size(0) == 1 && visible.defined() && visible.scalar_type() == at::kDouble && visible.dim() == 1 &&
                  visible.size(0) == weight_sum.size(2),
              kOp, ": weight_sum must be [1, H, T] and visible float64 [T], got ", weight_sum.sizes(), " and ", visible.sizes());
}

// The value, and its gradients along weight_sum and weight_log if they are wanted.
std::tuple<Tensor, Tensor, Tensor> value_and_gradients(const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible,
                                                       double margin, bool gradients) {
  const Tensor sum = weight_sum.contiguous(), log = weight_log.contiguous(), n = visible.contiguous();
  const Tensor dsum = gradients ? at::empty_like(sum) : Tensor(), dlog = gradients ? at::empty_like(log) : Tensor();
  const double value = with_type_of(sum, [&](auto type) {
    using T = decltype(type);
    AtenParallel parallel;
    return kernels::regulariser_rows(
        kernels::RegulariserRows<T>{sum.size(1), sum.size(2), sum.data_ptr<T>(), log.data_ptr<T>(), n.data_ptr<double>(),
                                    static_cast<double>(std::max<int64_t>(sum.numel(), 1)), margin, data_or_null<T>(dsum),
                                    data_or_null<T>(dlog)},
        parallel);
  });
  return {at::full({}, value, sum.options()), dsum, dlog};
}

class RegulariserFunction : public torch::autograd::Function<RegulariserFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible, double margin,
                        bool for_backward) {
    const auto [value, dsum, dlog] = value_and_gradients(weight_sum, weight_log, visible, margin, for_backward);
    if (for_backward) ctx->save_for_backward({dsum, dlog});
    return value;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative(kOp);
    const variable_list saved = ctx->get_saved_variables();
    return {saved[0] * grads[0], saved[1] * grads[0], Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor visible_keys(const Tensor& q_offsets, const Tensor& k_offsets, bool causal) {
  constexpr const char* op = "hinge::visible_keys";
  check_integers(op, "q_offsets", q_offsets, -1);
  check_integers(op, "k_offsets", k_offsets, q_offsets.numel());
  check_offsets(op, "q_offsets", q_offsets);
  check_offsets(op, "k_offsets", k_offsets);
  const Tensor q = q_offsets.contiguous(), k = k_offsets.contiguous();
  const int64_t sequences = q.numel() - 1;
  const Tensor visible = at::empty({q[sequences].item<int64_t>()}, at::kDouble);
  kernels::visible_keys(q.data_ptr<int64_t>(), k.data_ptr<int64_t>(), sequences, causal, visible.data_ptr<double>());
  return visible;
}

Tensor reluformer_regulariser(const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible, double margin) {
  check_regulariser(weight_sum, weight_log, visible);
  return RegulariserFunction::apply(weight_sum, weight_log, visible, margin, any_wants_gradient({weight_sum, weight_log}));
}

// For the Python package, which scales the gradients in its backward.
TORCH_LIBRARY_FRAGMENT(hinge, m) {
  const std::string margin = OptionArgument<double>::literal(kernels::kRegulariserMargin);
  m.def(torch::schema(("regulariser(Tensor weight_sum, Tensor weight_log, Tensor visible, float margin=" + margin +
                       ") -> (Tensor value, Tensor grad_sum, Tensor grad_log)")
                          .c_str()));
}

TORCH_LIBRARY_IMPL(hinge, CPU, m) {
  m.impl("regulariser", [](const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible, double margin) {
    check_regulariser(weight_sum, weight_log, visible);
    return value_and_gradients(weight_sum, weight_log, visible, margin, /*gradients=*/true);
  });
}

}  // namespace hinge
