// relu attention on plain pointers, against the formula in loops.
#include <hinge/kernels/attention.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  constexpr int64_t L = 37, D = 24;
  std::vector<float> q(L * D), k(L * D), v(L * D), out(L * D, NAN);
  for (int64_t i = 0; i < L * D; ++i) q[i] = std::sin(0.7f * i), k[i] = std::cos(1.3f * i), v[i] = std::sin(0.1f * i * i);

  hinge::kernels::AttentionShape shape;
  shape.B = shape.Hq = shape.Hkv = 1, shape.Lq = shape.Lk = L, shape.D = D;
  hinge::kernels::AttentionRule rule;
  rule.h = hinge::kernels::Activation::relu;
  rule.scale = 1 / std::sqrt(double{D});
  hinge::kernels::AttentionForward<float> arrays;
  arrays.q = {q.data(), 0, 0, D}, arrays.k = {k.data(), 0, 0, D}, arrays.v = {v.data(), 0, 0, D}, arrays.out = {out.data(), 0, 0, D};
  hinge::kernels::Serial serial;
  hinge::kernels::attention_forward(shape, rule, arrays, serial);

  double worst = 0;
  for (int64_t i = 0; i < L; ++i) {
    std::vector<double> expected(D);
    for (int64_t j = 0; j < L; ++j) {
      double score = 0;
      for (int64_t d = 0; d < D; ++d) score += double{q[i * D + d]} * k[j * D + d];
      const double weight = std::max(0.0, rule.scale * score) / L;
      for (int64_t d = 0; d < D; ++d) expected[d] += weight * v[j * D + d];
    }
    for (int64_t d = 0; d < D; ++d) worst = std::fmax(worst, std::abs(expected[d] - out[i * D + d]));
  }
  std::printf("largest difference: %g\n", worst);
  return worst < 1e-5 ? 0 : 1;  // sums of 37 terms below 1, in float32; NaN fails, too
}
