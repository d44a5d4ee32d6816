#include "hinge/ops/feed_forward.h"

#include "hinge/kernels/hidden_activation.h"
#include "ops/function.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using kernels::Activation;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps x, and of the hidden units what kernels/hidden_activation.h says.
class FeedForwardFunction : public torch::autograd::Function<FeedForwardFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& fc1, const Tensor& fc1_bias, const Tensor& fc2,
                        const OptionalTensor& fc2_bias, const OptionalTensor& residual, int64_t kind, double dropout, int64_t seed,
                        const OptionalTensor& given_numbers, bool for_backward) {
    const Tensor numbers = tensor_of(given_numbers);
    const auto activation = static_cast<Activation>(kind);
    const Tensor rows = x.contiguous(), w1 = fc1.contiguous(), w2 = fc2.contiguous();
    const Tensor u = at::empty({rows.size(0), w1.size(0)}, x.options());
    linear_into(rows, w1, fc1_bias.contiguous(), {}, u);
    const Tensor hidden = !for_backward || keeps_hidden(activation, dropout) ? u : at::empty_like(u);
    with_type_of(u, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::hidden_activation_forward(
          activation,
          kernels::HiddenActivationForward<T>{u.size(0),
                                              u.size(1),
                                              u.data_ptr<T>(),
                                              hidden.data_ptr<T>(),
                                              u.data_ptr<T>(),
                                              {dropout, static_cast<uint64_t>(seed), data_or_null<int64_t>(numbers)}},
          parallel);
    });
    const Tensor y = at::empty({rows.size(0), w2.size(0)}, x.options());
    linear_into(hidden, w2, tensor_of(fc2_bias), tensor_of(residual), y);
    if (for_backward) ctx->save_for_backward({rows, w1, w2, u, numbers});
    ctx->saved_data["activation"] = kind;
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["seed"] = seed;
    ctx->saved_data["fc2_bias"] = fc2_bias.has_value();
    ctx->saved_data["residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::feed_forward");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &fc1 = saved[1], &fc2 = saved[2], &kept = saved[3];
    const auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const double dropout = ctx->saved_data["dropout"].toDouble();
    const auto seed = static_cast<uint64_t>(ctx->saved_data["seed"].toInt());
    const Tensor grad = grads[0].contiguous();
    const Tensor du = product(grad, fc2);  // the gradient of the hidden units, until the kernel ran
    const bool made_anew = !keeps_hidden(activation, dropout);
    const Tensor hidden = made_anew ? at::empty_like(kept) : kept, fc1_bias = at::empty({fc1.size(0)}, x.options());
    with_type_of(x, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::hidden_activation_backward(activation,
                                          kernels::HiddenActivationBackward<T>{kept.size(0),
                                                                               kept.size(1),
                                                                               kept.data_ptr<T>(),
                                                                               du.data_ptr<T>(),
                                                                               du.data_ptr<T>(),
                                                                               made_anew ? hidden.data_ptr<T>() : nullptr,
                                                                               fc1_bias.data_ptr<T>(),
                                                                               {dropout, seed, data_or_null<int64_t>(saved[4])}},
                                          parallel);
    });
    Tensor dx, fc2_bias;
    if (ctx->needs_input_grad(0)) dx = product(du, fc1);
    if (ctx->saved_data["fc2_bias"].toBool()) fc2_bias = column_sums(grad);
    return {dx,       transposed_product(du, x),
            fc1_bias, transposed_product(grad, hidden),
            fc2_bias, ctx->saved_data["residual"].toBool() ? grads[0] : Tensor(),
            Tensor(), Tensor(),
            Tensor(), Tensor(),
            Tensor()};
  }

 private:
  // What is kept for backward are the hidden units themselves, made in place; of the others it is what they were made of.
  static bool keeps_hidden(Activation activation, double dropout) {
    return activation == Activation::relu || (activation == Activation::softmax && dropout == 0);
  }
};

}  // namespace

Tensor feed_forward(Activation activation, const Tensor& x, const Tensor& fc1, const Tensor& fc1_bias, const Tensor& fc2,
                    const Tensor& fc2_bias, const Tensor& residual, double dropout, int64_t seed, const Tensor& numbers) {
  constexpr const char* op = "hinge::feed_forward";
  if (x.defined() && x.dim() > 2) {
    TORCH_CHECK(
        !residual.defined() || (residual.dim() == x.dim() && residual.sizes().slice(0, x.dim() - 1) == x.sizes().slice(0, x.dim() - 1)), op,
        ": residual must have the rows of x ", x.sizes(), ", got ", residual.sizes());
    const Tensor skip = residual.defined() ? residual.flatten(0, -2) : residual;
    const Tensor y = feed_forward(activation, x.flatten(0, -2), fc1, fc1_bias, fc2, fc2_bias, skip, dropout, seed, numbers);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = y.size(1);
    return y.view(sizes);
  }
  check_floating(op, "x", x, 2);
  check_floating(op, "fc1", fc1, 2);
  check_floating(op, "fc2", fc2, 2);
  TORCH_CHECK(x.size(1) == fc1.size(1) && fc1.size(0) == fc2.size(1) && fc1.size(0) > 0, op,
              ": x [T, C], fc1 [W, C] and fc2 [N, W] do not fit: ", x.sizes(), ", ", fc1.sizes(), " and ", fc2.sizes());
  check_shape(op, "fc1", fc1, fc1.sizes(), x);
  check_shape(op, "fc2", fc2, fc2.sizes(), x);
  check_shape(op, "fc1_bias", fc1_bias, {fc1.size(0)}, x);
  if (fc2_bias.defined()) check_shape(op, "fc2_bias", fc2_bias, {fc2.size(0)}, x);
  if (residual.defined()) check_shape(op, "residual", residual, {x.size(0), fc2.size(0)}, x);
  check_dropout(op, dropout);
  if (numbers.defined()) check_integers(op, "numbers", numbers, x.size(0));
  return FeedForwardFunction::apply(x, fc1, fc1_bias, fc2, optional_of(fc2_bias), optional_of(residual), static_cast<int64_t>(activation),
                                    dropout, seed, optional_of(numbers), any_wants_gradient({x, fc1, fc1_bias, fc2, fc2_bias, residual}));
}

}  // namespace hinge
