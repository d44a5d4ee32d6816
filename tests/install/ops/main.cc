// relu attention on tensors, forward and backward, against the formula in ATen calls. It goes through torch's dispatcher, so the op must be
// registered: a linker that drops the registration from the static library shows here.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>

#include "all_headers.h"

int main() {
  at::manual_seed(1);
  const auto leaf = [] { return at::randn({2, 3, 37, 24}).requires_grad_(); };
  const at::Tensor q = leaf(), k = leaf(), v = leaf();

  const at::Tensor out = hinge::attention(q, k, v, hinge::preset("relu-vit"));
  out.square().sum().backward();
  const at::Tensor gradient = q.grad().clone();

  q.mutable_grad().reset();
  const at::Tensor expected = at::matmul(at::relu(at::matmul(q, k.transpose(2, 3)) / std::sqrt(24.0)) / 37.0, v);
  expected.square().sum().backward();

  const bool same = at::allclose(out, expected, 1e-4, 1e-5) && at::allclose(gradient, q.grad(), 1e-4, 1e-5);
  std::printf("forward and backward %s\n", same ? "agree" : "DIFFER");
  return same ? 0 : 1;
}
