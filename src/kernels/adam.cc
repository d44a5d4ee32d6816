#include "hinge/kernels/adam.h"

#define HWY_TARGET_INCLUDE "kernels/adam.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pieces of all parameters, for the workers to share.
struct Piece {
  size_t tensor;
  int64_t first, size;
};

template <typename T> std::vector<Piece> PiecesOf(const std::vector<AdamTensor<T>>& tensors) {
  constexpr int64_t kPiece = 32768;
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tensors.size(); ++t)
    for (int64_t first = 0; first < tensors[t].size; first += kPiece)
      pieces.push_back({t, first, std::min(kPiece, tensors[t].size - first)});
  return pieces;
}

template <typename T> void Step(const std::vector<AdamTensor<T>>& tensors, const AdamStep& step, Parallel& parallel) {
  const std::vector<Piece> pieces = PiecesOf(tensors);
  parallel.run(static_cast<int64_t>(pieces.size()), [&](int64_t task, int) HWY_ATTR {
    const Piece& piece = pieces[static_cast<size_t>(task)];
    const AdamTensor<T>& tensor = tensors[piece.tensor];
    const hn::ScalableTag<T> d;
    const auto set = [&](double x) HWY_ATTR { return hn::Set(d, static_cast<T>(x)); };
    const auto b1 = set(step.beta1), b2 = set(step.beta2), rest1 = set(1 - step.beta1), rest2 = set(1 - step.beta2);
    const auto scale = set(step.grad_scale), rate = set(step.lr / step.bias1), inverse_bias2 = set(1 / step.bias2), eps = set(step.eps);
    const auto kept = set(1 - tensor.decay);
    T *value = tensor.value + piece.first, *m = tensor.m + piece.first, *v = tensor.v + piece.first;
    const T* grad = tensor.grad + piece.first;
    ForVectors(d, piece.size, [&](int64_t j, int64_t n) HWY_ATTR {
      const auto g = hn::Mul(scale, LoadFirst(d, grad + j, n));
      const auto m1 = hn::MulAdd(rest1, g, hn::Mul(b1, LoadFirst(d, m + j, n)));
      const auto v1 = hn::MulAdd(rest2, hn::Mul(g, g), hn::Mul(b2, LoadFirst(d, v + j, n)));
      const auto update = hn::Div(hn::Mul(rate, m1), hn::Add(hn::Sqrt(hn::Mul(v1, inverse_bias2)), eps));
      StoreFirst(m1, d, m + j, n);
      StoreFirst(v1, d, v + j, n);
      StoreFirst(hn::Sub(hn::Mul(kept, LoadFirst(d, value + j, n)), update), d, value + j, n);
    });
  });
}

template <typename T> double SquaredNorm(const std::vector<AdamTensor<T>>& tensors, Parallel& parallel) {
  const std::vector<Piece> pieces = PiecesOf(tensors);
  std::vector<double> sums(pieces.size());
  parallel.run(static_cast<int64_t>(pieces.size()), [&](int64_t task, int) HWY_ATTR {
    const Piece& piece = pieces[static_cast<size_t>(task)];
    const T* grad = tensors[piece.tensor].grad + piece.first;
    const hn::ScalableTag<T> d;
    // Runs of at most 512 in T, then float64: a long sum of squares in float32 would lose its small terms.
    constexpr int64_t kRun = 512;
    double sum = 0;
    for (int64_t first = 0; first < piece.size; first += kRun) {
      auto squares = hn::Zero(d);
      ForVectors(d, std::min(kRun, piece.size - first), [&](int64_t j, int64_t n) HWY_ATTR {
        const auto g = LoadFirst(d, grad + first + j, n);
        squares = hn::MulAdd(g, g, squares);
      });
      sum += Total(d, squares);
    }
    sums[static_cast<size_t>(task)] = sum;
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

HINGE_FLOAT_AND_DOUBLE(Step);
HINGE_FLOAT_AND_DOUBLE(SquaredNorm);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Step);
HINGE_EXPORT(SquaredNorm);

template <typename T> void adam_step(const std::vector<AdamTensor<T>>& tensors, const AdamStep& step, Parallel& parallel) {
  HINGE_DISPATCH(Step, T)(tensors, step, parallel);
}
template <typename T> double squared_norm(const std::vector<AdamTensor<T>>& tensors, Parallel& parallel) {
  return HINGE_DISPATCH(SquaredNorm, T)(tensors, parallel);
}

HINGE_INSTANTIATE(adam_step);
HINGE_INSTANTIATE(squared_norm);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
