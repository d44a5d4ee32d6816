// A row is read twice. First: the largest of every block of classes. The k-th largest of these is a bound from below for the k-th largest
// class, since k blocks hold one that is at least as large. Second: the sum of exponentials, and on the way the few classes that reach the
// bound go through a list of the k best.
#include "hinge/kernels/top_k.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#define HWY_TARGET_INCLUDE "kernels/top_k.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The k best so far, best first. Classes are offered in rising order, so that of equal ones the first stays in front.
class BestClasses {
 public:
  BestClasses(int64_t k, int32_t* index, float* value) : k_(k), index_(index), value_(value) {}

  int64_t size() const { return size_; }
  bool full() const { return size_ == k_; }
  float worst() const { return value_[k_ - 1]; }  // if full

  void offer(int32_t index, float value) {
    if (full() && !(value > worst())) return;
    int64_t place = full() ? k_ - 1 : size_++;
    for (; place > 0 && value > value_[place - 1]; --place) index_[place] = index_[place - 1], value_[place] = value_[place - 1];
    index_[place] = index, value_[place] = value;
  }

 private:
  int64_t k_, size_ = 0;
  int32_t* index_;
  float* value_;
};

inline constexpr int64_t kBlock = 128;

// `maxima` is scratch for one number a block.
void TopKRow(const float* HWY_RESTRICT x, int64_t classes, int64_t k, int32_t* index, float* value, float* log_normaliser,
             std::vector<float>& maxima) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  maxima.clear();
  float largest = -kInfinity;
  for (int64_t first = 0; first < classes; first += kBlock) {
    const float block = LargestOf(x + first, std::min(kBlock, classes - first));
    maxima.push_back(block > -kInfinity ? block : -kInfinity);  // neither a NaN
    largest = std::max(largest, maxima.back());
  }
  float bound = -kInfinity;  // what is below is not among the k best
  if (static_cast<int64_t>(maxima.size()) >= k) {
    std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
    bound = maxima[static_cast<size_t>(k - 1)];
  }

  const hn::ScalableTag<float> d;
  const auto top = hn::Set(d, largest);
  auto low = hn::Set(d, bound);
  BestClasses best(k, index, value);
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  double total = 0;
  for (int64_t first = 0; first < classes; first += kStretch) {
    auto sum = hn::Zero(d);
    ForVectors(d, std::min(kStretch, classes - first), [&](int64_t j, int64_t n) HWY_ATTR {
      const int64_t at = first + j;
      const auto logits = LoadFirst(d, x + at, n);
      const auto e = OnlyFirst(d, ExpNotPositive(d, hn::Sub(logits, top)), n);
      sum = hn::Add(sum, e);
      if (HWY_LIKELY(hn::AllFalse(d, hn::Ge(logits, low)))) return;
      hn::Store(logits, d, lanes);
      for (int64_t lane = 0; lane < n; ++lane)
        if (lanes[lane] >= bound) best.offer(static_cast<int32_t>(at + lane), lanes[lane]);
      // Later ones must be larger than the k-th now: an equal one has a higher number.
      if (best.full()) bound = std::nextafter(best.worst(), kInfinity), low = hn::Set(d, bound);
    });
    total += Total(d, sum);
  }
  // Two subtractions: what is close to the largest keeps its digits.
  const auto rest = static_cast<float>(std::log(total));
  *log_normaliser = largest + rest;
  for (int64_t i = best.size(); i < k; ++i) index[i] = 0, value[i] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < k; ++i) value[i] = (value[i] - largest) - rest;
}

void TopKRows(const TopK& io, Parallel& parallel) {
  parallel.run(io.rows, [&](int64_t row, int) HWY_ATTR {
    static thread_local std::vector<float> maxima;
    TopKRow(io.logits + row * io.classes, io.classes, io.k, io.index + row * io.k, io.log_probability + row * io.k, io.log_normaliser + row,
            maxima);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(TopKRows);

void top_k(const TopK& io, Parallel& parallel) { HWY_DYNAMIC_DISPATCH(TopKRows)(io, parallel); }

}  // namespace hinge::kernels
#endif  // HWY_ONCE
