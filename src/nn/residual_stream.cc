#include "nn/residual_stream.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "hinge/ops/dense.h"
#include "hinge/ops/sequence.h"

namespace hinge::nn {

using at::Tensor;

Norm::Norm(const Builder& builder, const std::string& name, int64_t width)
    : weight(builder.constant(name + ".weight", {width}, 1)), bias(builder.constant(name + ".bias", {width}, 0)) {}

Tensor Norm::operator()(const Tensor& x) const { return layer_norm_fork(x, weight, bias, kNormEps).first; }

std::pair<Tensor, Tensor> ResidualStream::sum_and_norm(const Norm& norm) {
  const Tensor branch = std::exchange(pending_, Tensor());
  return residual_norm(x_, branch, norm.weight, norm.bias, kNormEps, dropout_, seed_,
                       forward_.sequence ? forward_.sequence->numbers : Tensor());
}

Tensor ResidualStream::begin(const Norm& norm) {
  if (placement_ == NormPlacement::post) return x_;
  Tensor input;
  std::tie(input, x_) = pending_.defined() ? sum_and_norm(norm) : layer_norm_fork(x_, norm.weight, norm.bias, kNormEps);
  return input;
}

void ResidualStream::show(LayerView view, const Tensor& output) const {
  view.output = output;
  forward_.views->push_back(std::move(view));
}

void ResidualStream::end_with_sum(const Tensor& sum, const Norm& norm) { x_ = placement_ == NormPlacement::pre ? sum : norm(sum); }

void ResidualStream::end(const Tensor& output, const Norm& norm) {
  pending_ = output;
  if (dropout_ > 0) seed_ = forward_.noise->next();
  if (placement_ == NormPlacement::post) x_ = sum_and_norm(norm).first;
}

const Tensor& ResidualStream::value() {
  if (pending_.defined() && dropout_ == 0) {
    x_ = x_ + std::exchange(pending_, Tensor());
  } else if (pending_.defined()) {
    // The sum as the next norm would see it, bit for bit; the norm itself is not needed here.
    Norm none;
    none.weight = at::ones({x_.size(-1)}, x_.options().requires_grad(false));
    none.bias = at::zeros_like(none.weight);
    x_ = sum_and_norm(none).second;
  }
  return x_;
}

Tensor ResidualStream::finish(const Norm& last) {
  if (placement_ == NormPlacement::post) return x_;
  if (!pending_.defined()) return last(x_);
  Tensor result;
  std::tie(result, x_) = sum_and_norm(last);
  return result;
}

Tensor ResidualStream::dropped_paths(const Tensor& output, double probability) const {
  const double keep = 1 - probability;
  const bool jagged = offsets_.q.defined();
  const int64_t sequences = jagged ? offsets_.q.numel() - 1 : output.size(0);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(forward_.noise->next()));
  Tensor factors = at::empty({sequences}, output.options().requires_grad(false)).bernoulli_(keep, generator).div_(keep);
  if (jagged) return output * factors.repeat_interleave(at::diff(offsets_.q)).unsqueeze(1);
  return output * factors.view({sequences, 1, 1});
}

}  // namespace hinge::nn
