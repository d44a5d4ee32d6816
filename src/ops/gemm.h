// Dense products: float32 through oneDNN, float64 through ATen (there to be right, not fast); and sums. Row-major, contiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace hinge {

// y = x w^T + bias + residual; x [R, K], w [N, K], y [R, N]. bias [N] and residual [R, N] may be undefined; y may be the residual's memory.
void linear_into(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const at::Tensor& residual, const at::Tensor& y);

// The weights of linear_into in the layout that oneDNN reads fastest: reordered when they are first read, and again when they have changed.
// For inference, where they serve many products. Any number of threads may use one. Where oneDNN has no such layout (before AVX-512),
// nothing is kept.
class PackedWeights {
 public:
  PackedWeights();
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // While one lives, the products of its thread read `weights`. ATen's version counter tells a change; who writes through data_ptr must
  // bump it. Where they are nested, the innermost counts.
  class Use {
   public:
    explicit Use(PackedWeights& weights);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    PackedWeights* outer_;
  };

  size_t count() const;  // of those that are kept

 private:
  friend struct WeightSource;
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

// a b and a^T b into new tensors.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b);

// The sums of the columns of x [R, N], float32 or float64: [N].
at::Tensor column_sums(const at::Tensor& x);

// c = a b, c = a^T b, and c += a^T b.
void product_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c);
void transposed_product_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c);
void add_transposed_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c);

}  // namespace hinge
