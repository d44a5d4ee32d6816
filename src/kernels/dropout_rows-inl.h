// Dropout of arrays of rows, for the kernels that fold it into their own pass: element j of row i is what dropout_keeps(seed, ..., 0, i, j)
// says (hinge/kernels/dropout.h). Compiled once per target.
#if defined(HINGE_DROPOUT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_DROPOUT_ROWS_INL_H_
#undef HINGE_DROPOUT_ROWS_INL_H_
#else
#define HINGE_DROPOUT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hinge/kernels/dropout.h"
#include "hwy/highway.h"
#include "kernels/dropout-inl.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What the elements of a row are multiplied by: 0, or 1 / (1 - dropout).
template <typename T> class RowDropout {
 public:
  explicit RowDropout(const Dropout& dropout)
      : dropout_(dropout), threshold_(dropout_threshold(dropout.probability)), scale_(static_cast<T>(dropout_scale(dropout.probability))) {}

  bool drops() const { return threshold_ > 0; }

  // Calls body(j, n, factors) for the vectors of [0, width) of a row, as ForVectors does.
  template <class D, class Body> HWY_INLINE void ForVectorsOf(D d, int64_t row, int64_t width, const Body& body) const {
    if (!drops()) {
      const auto one = hn::Set(d, T{1});
      ForVectors(d, width, [&](int64_t j, int64_t n) HWY_ATTR { body(j, n, one); });
      return;
    }
    const auto scale = hn::Set(d, scale_);
    const int64_t number = dropout_.number(row);
    HWY_ALIGN T kept[kRun];
    for (int64_t first = 0; first < width; first += kRun) {
      DropoutRun<false>(dropout_.seed, threshold_, 0, number, first, kRun, kept);
      ForVectors(d, std::min(kRun, width - first),
                 [&](int64_t j, int64_t n) HWY_ATTR { body(first + j, n, hn::Mul(hn::Load(d, kept + j), scale)); });
    }
  }

 private:
  static constexpr int64_t kRun = 64;  // keys of a run of the generator
  Dropout dropout_;
  uint32_t threshold_;
  T scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
