#include "hinge/ops/regulariser.h"

#include "ops/function.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class RegulariserFunction : public torch::autograd::Function<RegulariserFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& weight_sum, const Tensor& weight_log, const Tensor& visible, double margin,
                        bool for_backward) {
    const Tensor sum = weight_sum.contiguous(), log = weight_log.contiguous(), n = visible.contiguous();
    const Tensor dsum = for_backward ? at::empty_like(sum) : Tensor(), dlog = for_backward ? at::empty_like(log) : Tensor();
    const double value = with_type_of(sum, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      return kernels::regulariser_rows(
          kernels::RegulariserRows<T>{sum.size(1), sum.size(2), sum.data_ptr<T>(), log.data_ptr<T>(), n.data_ptr<double>(),
                                      static_cast<double>(std::max<int64_t>(sum.numel(), 1)), margin, data_or_null<T>(dsum),
                                      data_or_null<T>(dlog)},
          parallel);
    });
    if (for_backward) ctx->save_for_backward({dsum, dlog});
    return at::full({}, value, sum.options());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::reluformer_regulariser");
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
  constexpr const char* op = "hinge::reluformer_regulariser";
  check_floating(op, "weight_sum", weight_sum, 3);
  check_shape(op, "weight_log", weight_log, weight_sum.sizes(), weight_sum);
  TORCH_CHECK(weight_sum.size(0) == 1 && visible.defined() && visible.scalar_type() == at::kDouble && visible.dim() == 1 &&
                  visible.size(0) == weight_sum.size(2),
              op, ": weight_sum must be [1, H, T] and visible float64 [T], got ", weight_sum.sizes(), " and ", visible.sizes());
  return RegulariserFunction::apply(weight_sum, weight_log, visible, margin, any_wants_gradient({weight_sum, weight_log}));
}

}  // namespace hinge
