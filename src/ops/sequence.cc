#include "hinge/ops/sequence.h"

#include "hinge/kernels/embedding.h"
#include "hinge/kernels/residual_norm.h"
#include "hinge/kernels/smoothed_cross_entropy.h"
#include "ops/function.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

namespace hinge {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- embeddings

class EmbedFunction : public torch::autograd::Function<EmbedFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& weight, const Tensor& positions, const Tensor& tokens, const Tensor& place,
                        double scale, double dropout, int64_t seed) {
    const Tensor w = weight.contiguous(), p = positions.contiguous(), out = at::empty({tokens.size(0), w.size(1)}, w.options());
    with_type_of(w, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::embedding_forward(kernels::Embedding<T>{tokens.size(0),
                                                       w.size(1),
                                                       tokens.data_ptr<int64_t>(),
                                                       place.data_ptr<int64_t>(),
                                                       w.data_ptr<T>(),
                                                       p.data_ptr<T>(),
                                                       scale,
                                                       {dropout, static_cast<uint64_t>(seed)},
                                                       out.data_ptr<T>()},
                                 parallel);
    });
    ctx->save_for_backward({tokens, place});
    ctx->saved_data["rows"] = std::vector<int64_t>{w.size(0), p.size(0)};
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["seed"] = seed;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::embed_tokens");
    const variable_list saved = ctx->get_saved_variables();
    const auto rows = ctx->saved_data["rows"].toIntVector();
    const kernels::Dropout dropout{ctx->saved_data["dropout"].toDouble(), static_cast<uint64_t>(ctx->saved_data["seed"].toInt())};
    const Tensor grad = grads[0].contiguous();
    const auto sums = [&](const Tensor& index, int64_t entries, double scale) {
      const Tensor result = at::empty({entries, grad.size(1)}, grad.options());
      with_type_of(grad, [&](auto type) {
        using T = decltype(type);
        AtenParallel parallel;
        kernels::embedding_sums(kernels::EmbeddingSums<T>{grad.size(0), grad.size(1), entries, index.data_ptr<int64_t>(),
                                                          grad.data_ptr<T>(), scale, dropout, result.data_ptr<T>()},
                                parallel);
      });
      return result;
    };
    Tensor dweight, dpositions;
    if (ctx->needs_input_grad(0)) dweight = sums(saved[0], rows[0], ctx->saved_data["scale"].toDouble());
    if (ctx->needs_input_grad(1)) dpositions = sums(saved[1], rows[1], 1);
    return {dweight, dpositions, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// ---- residual, dropout and norm

class ResidualNormFunction : public torch::autograd::Function<ResidualNormFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias,
                               double eps, double dropout, int64_t seed, const OptionalTensor& given_numbers) {
    const Tensor numbers = tensor_of(given_numbers);
    const Tensor r = residual.contiguous(), branch = x.contiguous(), w = weight.contiguous(), b = bias.contiguous();
    const Tensor y = at::empty_like(r), z = at::empty_like(r), mean = at::empty({r.size(0)}, r.options()), rstd = at::empty_like(mean);
    with_type_of(r, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::residual_norm_forward(
          {r.size(0), r.size(1), eps, {dropout, static_cast<uint64_t>(seed), data_or_null<int64_t>(numbers)}},
          kernels::ResidualNormForward<T>{r.data_ptr<T>(), branch.data_ptr<T>(), w.data_ptr<T>(), b.data_ptr<T>(), y.data_ptr<T>(),
                                          z.data_ptr<T>(), mean.data_ptr<T>(), rstd.data_ptr<T>()},
          parallel);
    });
    ctx->save_for_backward({y, w, mean, rstd, numbers});
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["seed"] = seed;
    ctx->set_materialize_grads(false);
    return {z, y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::residual_norm");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &y = saved[0], &weight = saved[1];
    const double dropout = ctx->saved_data["dropout"].toDouble();
    const Tensor dz = grads[0].defined() ? grads[0].contiguous() : at::zeros_like(y);
    const Tensor dy = grads[1].defined() ? grads[1].contiguous() : Tensor();
    const Tensor dresidual = at::empty_like(y), dx = dropout > 0 ? at::empty_like(y) : dresidual;
    const Tensor dweight = at::empty_like(weight), dbias = at::empty_like(weight);
    with_type_of(y, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::residual_norm_backward(
          {y.size(0), y.size(1), 0, {dropout, static_cast<uint64_t>(ctx->saved_data["seed"].toInt()), data_or_null<int64_t>(saved[4])}},
          kernels::ResidualNormBackward<T>{dz.data_ptr<T>(), y.data_ptr<T>(), weight.data_ptr<T>(), saved[2].data_ptr<T>(),
                                           saved[3].data_ptr<T>(), data_or_null<T>(dy), dresidual.data_ptr<T>(),
                                           dropout > 0 ? dx.data_ptr<T>() : nullptr, dweight.data_ptr<T>(), dbias.data_ptr<T>()},
          parallel);
    });
    return {dresidual, dx, dweight, dbias, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, double eps) {
    const Tensor x = input.contiguous(), w = weight.contiguous(), y = at::empty_like(x);
    with_type_of(x, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::rms_norm_forward(
          kernels::RmsNorm<T>{x.size(0), x.size(1), eps, x.data_ptr<T>(), w.data_ptr<T>(), y.data_ptr<T>(), nullptr, nullptr, nullptr},
          parallel);
    });
    ctx->save_for_backward({x, w});
    ctx->saved_data["eps"] = eps;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::rms_norm");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &w = saved[1], grad = grads[0].contiguous(), dx = at::empty_like(x), dw = at::empty_like(w);
    with_type_of(x, [&](auto type) {
      using T = decltype(type);
      AtenParallel parallel;
      kernels::rms_norm_backward(kernels::RmsNorm<T>{x.size(0), x.size(1), ctx->saved_data["eps"].toDouble(), x.data_ptr<T>(),
                                                     w.data_ptr<T>(), nullptr, grad.data_ptr<T>(), dx.data_ptr<T>(), dw.data_ptr<T>()},
                                 parallel);
    });
    return {dx, dw, Tensor()};
  }
};

// ---- loss

// Logits of at most this many elements exist at a time.
constexpr int64_t kMostLogits = int64_t{32} << 20;

// Forward makes the gradients, too: they cost the logits, which are gone after it.
class ProjectedLossFunction : public torch::autograd::Function<ProjectedLossFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, const Tensor& labels, double smoothing,
                        bool for_backward, ProjectedLoss* report) {
    const Tensor x = input.contiguous(), w = weight.contiguous();
    const int64_t rows = x.size(0), classes = w.size(0);
    const int64_t parts = (rows * classes + kMostLogits - 1) / kMostLogits, chunk = (rows + parts - 1) / parts;
    const Tensor buffer = at::empty({chunk, classes}, x.options());
    const Tensor dx = for_backward ? at::empty_like(x) : Tensor();
    Tensor dw;
    const Tensor losses = at::empty({rows}, at::kDouble), nll = at::empty({rows}, at::kDouble), right = at::empty({rows}, at::kByte);
    for (int64_t first = 0; first < rows; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      const Tensor some = x.narrow(0, first, count), logits = buffer.narrow(0, 0, count);
      linear_into(some, w, {}, {}, logits);
      with_type_of(x, [&](auto type) {
        using T = decltype(type);
        AtenParallel parallel;
        kernels::smoothed_cross_entropy(
            kernels::SmoothedCrossEntropy<T>{count, classes, logits.data_ptr<T>(), labels.data_ptr<int64_t>() + first, smoothing,
                                             for_backward, 1 / static_cast<double>(rows), losses.data_ptr<double>() + first,
                                             nll.data_ptr<double>() + first, right.data_ptr<uint8_t>() + first},
            parallel);
      });
      if (!for_backward) continue;
      product_into(logits, w, dx.narrow(0, first, count));
      if (dw.defined())
        add_transposed_product(logits, some, dw);
      else
        dw = transposed_product(logits, some);
    }
    if (for_backward) ctx->save_for_backward({dx, dw});
    report->nll = nll.sum().item<double>();
    report->right = right.sum().item<int64_t>();
    return losses.mean().to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_only_first_derivative("hinge::projected_cross_entropy");
    const variable_list saved = ctx->get_saved_variables();
    const bool as_they_are = grads[0].item<double>() == 1;
    const auto scaled = [&](const Tensor& gradient) { return as_they_are ? gradient : gradient * grads[0]; };
    return {scaled(saved[0]), scaled(saved[1]), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embed_tokens(const Tensor& weight, const Tensor& tokens, const Tensor& offsets, const Tensor& positions, double scale,
                    double dropout, int64_t seed) {
  constexpr const char* op = "hinge::embed_tokens";
  check_floating(op, "weight", weight, 2);
  check_integers(op, "tokens", tokens, -1);
  check_integers(op, "offsets", offsets, -1);
  check_range(op, "tokens", tokens, weight.size(0));
  check_floating(op, "positions", positions, 2);
  check_shape(op, "positions", positions, {positions.size(0), weight.size(1)}, weight);
  check_dropout(op, dropout);
  const Tensor bounds = offsets.contiguous(), place = at::empty_like(tokens);
  const int64_t* begin = bounds.data_ptr<int64_t>();
  TORCH_CHECK(
      bounds.numel() >= 1 && begin[0] == 0 && begin[bounds.numel() - 1] == tokens.numel() && std::is_sorted(begin, begin + bounds.numel()),
      op, ": offsets must go from 0 to the number of tokens, ", tokens.numel(), ", and never decrease");
  kernels::places_in_sequences(begin, bounds.numel() - 1, place.data_ptr<int64_t>());
  check_range(op, "places in the sequences", place, positions.size(0));
  return EmbedFunction::apply(weight, positions, tokens.contiguous(), place, scale, dropout, seed);
}

std::pair<Tensor, Tensor> residual_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                                        double dropout, int64_t seed, const Tensor& numbers) {
  constexpr const char* op = "hinge::residual_norm";
  if (residual.defined() && residual.dim() > 2) {
    TORCH_CHECK(x.defined() && x.sizes() == residual.sizes(), op, ": x must have the residual's shape ", residual.sizes(), ", got ",
                x.sizes());
    const auto [normed, sum] = residual_norm(residual.flatten(0, -2), x.flatten(0, -2), weight, bias, eps, dropout, seed, numbers);
    return {normed.view(residual.sizes()), sum.view(residual.sizes())};
  }
  check_floating(op, "residual", residual, 2);
  check_shape(op, "x", x, residual.sizes(), residual);
  check_shape(op, "weight", weight, {residual.size(1)}, residual);
  check_shape(op, "bias", bias, {residual.size(1)}, residual);
  check_dropout(op, dropout);
  if (numbers.defined()) check_integers(op, "numbers", numbers, residual.size(0));
  const variable_list r = ResidualNormFunction::apply(residual, x, weight, bias, eps, dropout, seed, optional_of(numbers));
  return {r[0], r[1]};
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  constexpr const char* op = "hinge::rms_norm";
  if (x.defined() && x.dim() > 2) return rms_norm(x.flatten(0, -2), weight, eps).view(x.sizes());
  check_floating(op, "x", x, 2);
  check_shape(op, "weight", weight, {x.size(1)}, x);
  return RmsNormFunction::apply(x, weight, eps);
}

ProjectedLoss projected_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels, double smoothing) {
  constexpr const char* op = "hinge::projected_cross_entropy";
  check_floating(op, "x", x, 2);
  TORCH_CHECK(x.size(0) > 0, op, ": x has no rows");
  check_floating(op, "weight", weight, 2);
  check_shape(op, "weight", weight, {weight.size(0), x.size(1)}, x);
  check_integers(op, "labels", labels, x.size(0));
  check_range(op, "labels", labels, weight.size(0));
  TORCH_CHECK(smoothing >= 0 && smoothing < 1, op, ": smoothing must be in [0, 1), got ", smoothing);
  ProjectedLoss result;
  result.loss = ProjectedLossFunction::apply(x, weight, labels.contiguous(), smoothing, any_wants_gradient({x, weight}), &result);
  return result;
}

}  // namespace hinge
