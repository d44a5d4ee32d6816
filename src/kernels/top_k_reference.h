// The meaning of kernels/top_k.h in plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace hinge::kernels::reference {

struct TopKRow {
  std::vector<int32_t> index;
  std::vector<double> log_probability;
  double log_normaliser = 0;
};

inline TopKRow top_k(const float* logits, int64_t classes, int64_t k) {
  TopKRow row;
  const double largest = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c]) - largest);
  row.log_normaliser = largest + std::log(sum);
  row.index.resize(static_cast<size_t>(classes));
  std::iota(row.index.begin(), row.index.end(), 0);
  std::stable_sort(row.index.begin(), row.index.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  row.index.resize(static_cast<size_t>(k));
  for (const int32_t c : row.index) row.log_probability.push_back(static_cast<double>(logits[c]) - row.log_normaliser);
  return row;
}

}  // namespace hinge::kernels::reference
