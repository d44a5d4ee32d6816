#include "hinge/kernels/embedding.h"

#include <vector>

#define HWY_TARGET_INCLUDE "kernels/embedding.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/dropout_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> void Gather(const Embedding<T>& io, Parallel& parallel) {
  const RowDropout<T> dropout(io.dropout);
  ForRows(io.tokens, /*per_task=*/64, parallel, [&](int64_t i) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(io.scale));
    const T *word = io.weight + io.token[i] * io.width, *position = io.positions + io.place[i] * io.width;
    T* out = io.out + i * io.width;
    dropout.ForVectorsOf(d, i, io.width, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
      const auto sum = hn::MulAdd(LoadFirst(d, word + j, n), scale, LoadFirst(d, position + j, n));
      StoreFirst(hn::Mul(sum, factors), d, out + j, n);
    });
  });
}

// Rows sorted by their index (by counting: their order stays), then one writer for each entry.
template <typename T> void Sums(const EmbeddingSums<T>& io, Parallel& parallel) {
  std::vector<int64_t> first(static_cast<size_t>(io.entries + 1)), order(static_cast<size_t>(io.rows));
  for (int64_t i = 0; i < io.rows; ++i) ++first[static_cast<size_t>(io.index[i] + 1)];
  for (size_t k = 1; k < first.size(); ++k) first[k] += first[k - 1];
  std::vector<int64_t> next = first;
  for (int64_t i = 0; i < io.rows; ++i) order[static_cast<size_t>(next[static_cast<size_t>(io.index[i])]++)] = i;

  constexpr int64_t kMostTasks = 64;
  const RowDropout<T> dropout(io.dropout);
  const int64_t per_task = (io.entries + kMostTasks - 1) / kMostTasks;
  parallel.run((io.entries + per_task - 1) / std::max<int64_t>(per_task, 1), [&](int64_t task, int) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(io.scale));
    for (int64_t k = task * per_task; k < std::min(io.entries, (task + 1) * per_task); ++k) {
      T* sums = io.sums + k * io.width;
      std::fill_n(sums, io.width, T{0});
      const int64_t begin = first[static_cast<size_t>(k)], end = first[static_cast<size_t>(k + 1)];
      for (int64_t at = begin; at < end; ++at) {
        const int64_t i = order[static_cast<size_t>(at)];
        const T* grad = io.grad + i * io.width;
        dropout.ForVectorsOf(d, i, io.width, [&](int64_t j, int64_t n, auto factors) HWY_ATTR {
          StoreFirst(hn::MulAdd(LoadFirst(d, grad + j, n), factors, LoadFirst(d, sums + j, n)), d, sums + j, n);
        });
      }
      if (begin == end) continue;
      ForVectors(d, io.width,
                 [&](int64_t j, int64_t n) HWY_ATTR { StoreFirst(hn::Mul(LoadFirst(d, sums + j, n), scale), d, sums + j, n); });
    }
  });
}

HINGE_FLOAT_AND_DOUBLE(Gather);
HINGE_FLOAT_AND_DOUBLE(Sums);

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HINGE_EXPORT(Gather);
HINGE_EXPORT(Sums);

void places_in_sequences(const int64_t* offsets, int64_t sequences, int64_t* place) {
  for (int64_t s = 0; s < sequences; ++s)
    for (int64_t i = offsets[s]; i < offsets[s + 1]; ++i) place[i] = i - offsets[s];
}

template <typename T> void embedding_forward(const Embedding<T>& io, Parallel& parallel) { HINGE_DISPATCH(Gather, T)(io, parallel); }
template <typename T> void embedding_sums(const EmbeddingSums<T>& io, Parallel& parallel) { HINGE_DISPATCH(Sums, T)(io, parallel); }

HINGE_INSTANTIATE(embedding_forward);
HINGE_INSTANTIATE(embedding_sums);

}  // namespace hinge::kernels
#endif  // HWY_ONCE
