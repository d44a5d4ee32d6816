#include "hinge/kernels/row_regulariser.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hinge::kernels {
namespace {

inline constexpr int64_t kRowsPerTask = 512;

// A few numbers per row and head: no SIMD.
template <typename T> double rows(const RegulariserRows<T>& io, Parallel& parallel) {
  const int64_t total = io.heads * io.rows, tasks = (total + kRowsPerTask - 1) / kRowsPerTask;
  std::vector<double> sums(static_cast<size_t>(tasks));
  parallel.run(tasks, [&](int64_t task, int) {
    double sum = 0;
    for (int64_t i = task * kRowsPerTask; i < std::min(total, (task + 1) * kRowsPerTask); ++i) {
      const RowRegulariser row =
          row_regulariser(static_cast<double>(io.weight_sum[i]), static_cast<double>(io.weight_log[i]), io.visible[i % io.rows], io.margin);
      sum += row.value;
      if (!io.grad_sum) continue;
      io.grad_sum[i] = static_cast<T>(row.slope_sum / io.count);
      io.grad_log[i] = static_cast<T>(row.slope_log / io.count);
    }
    sums[static_cast<size_t>(task)] = sum;
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum / io.count;
}

}  // namespace

RowRegulariser row_regulariser(double weight_sum, double weight_log, double visible, double margin) {
  RowRegulariser r;
  if (visible <= 0) return r;
  const bool below = weight_sum < kRegulariserFloor;
  const double s = below ? kRegulariserFloor : weight_sum, log_s = std::log(s);
  if (below)
    r.value = -log_s + 1 - weight_sum / s, r.slope_sum = -1 / s;
  else
    r.value = std::abs(log_s), r.slope_sum = log_s > 0 ? 1 / s : log_s < 0 ? -1 / s : 0;
  const double excess = log_s - weight_log / s - margin * std::log(visible);
  if (!(excess > 0)) return r;  // also where an infinite margin meets log 1
  r.value += excess;
  r.slope_log = -1 / s;
  if (!below) r.slope_sum += (1 + weight_log / s) / s;
  return r;
}

void visible_keys(const int64_t* q_offsets, const int64_t* k_offsets, int64_t sequences, bool causal, double* visible) {
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t rows = q_offsets[s + 1] - q_offsets[s], keys = k_offsets[s + 1] - k_offsets[s];
    for (int64_t i = 0; i < rows; ++i)
      visible[q_offsets[s] + i] = static_cast<double>(causal ? std::clamp<int64_t>(i + 1 + keys - rows, 0, keys) : keys);
  }
}

double regulariser_rows(const RegulariserRows<float>& io, Parallel& parallel) { return rows(io, parallel); }
double regulariser_rows(const RegulariserRows<double>& io, Parallel& parallel) { return rows(io, parallel); }

}  // namespace hinge::kernels
