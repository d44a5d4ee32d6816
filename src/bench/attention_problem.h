// One attention problem in memory, ready for the kernels, and its check against the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/attention.h"
#include "bench/buffer.h"
#include "bench/zeros.h"
#include "hinge/kernels/attention.h"
#include "hinge/kernels/parallel.h"

namespace hinge::bench {

// Contiguous [B, H, L, D]. Inputs are made once; outputs are overwritten by each run.
class AttentionProblem {
 public:
  AttentionProblem(const Shape& shape, int64_t D, const std::optional<ZeroShares>& zeros, kernels::Parallel& parallel);

  // Readies the backward of a case: for softmax it needs the output of its forward.
  void prepare(const AttentionCase& which);
  void run(const AttentionCase& which);

  // Compares a run with the reference in float64, on the first head and (without dropout, whose numbers depend on the head) on the
  // last, on all rows of a short problem and on three blocks of rows of a long one; the gradients of keys and values are then those
  // of these rows alone. Returns the largest error as a share of what is allowed.
  double check(const AttentionCase& which);

  ZeroShares zero_shares(const AttentionCase& which) const;
  double skipped_share(const AttentionCase& which);

 private:
  struct Rows {
    int64_t begin, end;
  };
  std::vector<Rows> checked_rows() const;
  double check_head(const AttentionCase& which, int64_t head) const;

  kernels::AttentionShape kernel_shape(const AttentionCase& which) const;
  kernels::AttentionRule rule(const AttentionCase& which) const;
  void forward(const AttentionCase& which, kernels::SkipCount* skipped);
  void backward(const AttentionCase& which, const Buffer<float>& grad_out, kernels::SkipCount* skipped);
  template <typename T> kernels::View<T> view(T* data) const { return {data, shape_.H * shape_.L * D_, shape_.L * D_, D_}; }

  Shape shape_;
  int64_t D_;
  kernels::Parallel& parallel_;
  Buffer<float> q_, k_, v_, grad_out_, checked_grad_out_, out_, lse_, dq_, dk_, dv_;  // checked: zero outside checked_rows()
};

}  // namespace hinge::bench
