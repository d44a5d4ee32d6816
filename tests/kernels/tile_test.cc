// The micro-kernels of attention at every height that a target may choose, on every SIMD target, with whole numbers: all sums are exact, so
// results are equal to plain loops, not close. Around them nothing may be written.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "problem.h"

// As seen from src, which is where the compiler looks.
#define HWY_TARGET_INCLUDE "../tests/kernels/tile_test.cc"
#include "kernels/dispatch.h"
// Once per target:
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {

// Aligned, filled with whole numbers from -3 to 3, or with one value.
template <typename T> class Numbers {
 public:
  Numbers(int64_t count, uint32_t seed) : Numbers(count) {
    for (T& x : *this) x = static_cast<T>(static_cast<int>((seed = seed * 1664525u + 1013904223u) >> 24) % 7 - 3);
  }
  static Numbers all(int64_t count, T value) {
    Numbers numbers(count);
    for (T& x : numbers) x = value;
    return numbers;
  }
  T* begin() { return data_.get(); }
  T* end() { return begin() + count_; }
  T& operator[](int64_t i) { return data_[static_cast<size_t>(i)]; }

 private:
  explicit Numbers(int64_t count) : count_(count), data_(hwy::AllocateAligned<T>(static_cast<size_t>(count))) {}
  int64_t count_;
  hwy::AlignedFreeUniquePtr<T[]> data_;
};

// One height MR (rows of a tile, or keys of SpreadKeys). Odd sizes, so that loops have ends.
template <int MR, typename T> struct TileCheck {
  static constexpr int64_t kKeys = kBackwardKeys, kDepth = 13, kCount = 21, kLeftRow = 19, kOutside = 1000;
  const int64_t NR, N;

  TileCheck() : NR(PanelWidth<T>()), N(NR / kPanelVectors) {}

  template <bool kWide> void ScoreAndGradient() const {
    const int64_t width = kWide ? NR : N;
    Numbers<T> left(MR * kLeftRow, 1), panel(kDepth * NR, 2), shift(MR, 3);
    Numbers<T> weights = Numbers<T>::all((MR + 1) * kKeys, kOutside), slopes = weights.all((MR + 1) * kKeys, kOutside),
               unused = weights.all((MR + 1) * kKeys, kOutside), raw = weights.all((MR + 1) * kKeys, kOutside),
               gradients = weights.all((MR + 1) * kKeys, kOutside);
    uint32_t mask = 0, wanted_mask = 0;
    ScoreTile<MR, kWide, Relu, kKeys, false, T>(left.begin(), kLeftRow, panel.begin(), kDepth, shift.begin(), weights.begin(),
                                                unused.begin(), &mask);
    ScoreTile<MR, kWide, Relu, kKeys, true, T>(left.begin(), kLeftRow, panel.begin(), kDepth, shift.begin(), unused.begin(), slopes.begin(),
                                               nullptr);
    Numbers<T> stored = Numbers<T>::all((MR + 1) * kKeys, kOutside);
    for (int64_t i = 0; i < (MR + 1) * kKeys; ++i) stored[i] = slopes[i];
    GradientTile<MR, kWide, Slope::kPositiveWeight, T>(left.begin(), kLeftRow, panel.begin(), kDepth, shift.begin(), weights.begin(),
                                                       gradients.begin(), nullptr);
    GradientTile<MR, kWide, Slope::kStored, T>(left.begin(), kLeftRow, panel.begin(), kDepth, shift.begin(), weights.begin(),
                                               stored.begin(), nullptr);
    GradientTile<MR, kWide, Slope::kStored, T>(left.begin(), kLeftRow, panel.begin(), kDepth, shift.begin(), weights.begin(),
                                               slopes.begin(), raw.begin());
    for (int64_t r = 0; r <= MR; ++r)
      for (int64_t j = 0; j < kKeys; ++j) {
        const int64_t at = r * kKeys + j;
        if (r == MR || j >= width) {
          for (Numbers<T>* outside : {&weights, &slopes, &unused, &raw, &gradients, &stored}) ASSERT_EQ((*outside)[at], kOutside);
          continue;
        }
        T dot = 0;
        for (int64_t k = 0; k < kDepth; ++k) dot += left[r * kLeftRow + k] * panel[k * NR + j];
        const T x = dot + shift[r];
        ASSERT_EQ(weights[at], x > 0 ? x : 0) << "row " << r << ", key " << j;
        ASSERT_EQ(unused[at], weights[at]);
        ASSERT_EQ(slopes[at], x > 0 ? 1 : 0);
        ASSERT_EQ(gradients[at], x > 0 ? x : 0) << "row " << r << ", key " << j;
        ASSERT_EQ(stored[at], gradients[at]);
        ASSERT_EQ(raw[at], dot);
        if (x > 0) wanted_mask |= uint32_t{1} << j;
      }
    EXPECT_EQ(mask, wanted_mask);
  }

  template <bool kListed> void Weighted() const {
    Numbers<T> weights(MR * kKeys, 4), rows(kKeys * NR, 5), factor(MR, 6), start((MR + 1) * NR, 7);
    const std::vector<uint32_t> list = List();
    for (bool add : {false, true})
      for (bool times : {false, true}) {
        Numbers<T> sums((MR + 1) * NR, 7);
        WeightedRows<MR, kKeys, kListed, T>(weights.begin(), list.data(), kCount, rows.begin(), NR, sums.begin(), NR, add,
                                            times ? factor.begin() : nullptr);
        for (int64_t r = 0; r <= MR; ++r)
          for (int64_t n = 0; n < NR; ++n) {
            T sum = add ? start[r * NR + n] : 0;
            for (int64_t k = 0; k < kCount && r < MR; ++k) {
              const int64_t key = kListed ? static_cast<int64_t>(list[static_cast<size_t>(k)]) : k;
              sum += weights[r * kKeys + key] * rows[key * NR + n];
            }
            if (times && r < MR) sum *= factor[r];
            ASSERT_EQ(sums[r * NR + n], r < MR ? sum : start[r * NR + n]) << "row " << r << ", element " << n;
          }
      }
  }

  template <bool kListed> void Spread() const {
    Numbers<T> weights(MR * kKeys, 8), tile(MR * NR, 9), start(kKeys * NR, 10), sums(kKeys * NR, 10);
    const std::vector<uint32_t> list = List();
    SpreadRows<MR, kListed, T>(weights.begin(), list.data(), kCount, tile.begin(), NR, sums.begin());
    std::vector<bool> chosen(kKeys);
    for (int64_t k = 0; k < kCount; ++k) chosen[kListed ? list[static_cast<size_t>(k)] : static_cast<size_t>(k)] = true;
    for (int64_t key = 0; key < kKeys; ++key)
      for (int64_t n = 0; n < NR; ++n) {
        T sum = start[key * NR + n];
        for (int64_t r = 0; r < MR && chosen[static_cast<size_t>(key)]; ++r) sum += weights[r * kKeys + key] * tile[r * NR + n];
        ASSERT_EQ(sums[key * NR + n], sum) << "key " << key << ", element " << n;
      }
  }

  void Keys() const {
    constexpr int64_t first = 3;
    Numbers<T> weights(kCount * kKeys, 11), tile(kCount * NR, 12), start(kKeys * NR, 13), sums(kKeys * NR, 13);
    SpreadKeys<MR, T>(weights.begin() + first, kCount, tile.begin(), NR, sums.begin() + first * NR);
    for (int64_t key = 0; key < kKeys; ++key)
      for (int64_t n = 0; n < NR; ++n) {
        T sum = start[key * NR + n];
        for (int64_t r = 0; r < kCount && key >= first && key < first + MR; ++r) sum += weights[r * kKeys + key] * tile[r * NR + n];
        ASSERT_EQ(sums[key * NR + n], sum) << "key " << key << ", element " << n;
      }
  }

  static std::vector<uint32_t> List() {
    std::vector<uint32_t> list;
    for (uint32_t k = 0; k < kCount; ++k) list.push_back(5 * k + k % 3);
    return list;
  }

  static void Run() {
    SCOPED_TRACE("height " + std::to_string(MR) + (sizeof(T) == 4 ? ", float" : ", double"));
    const TileCheck check;
    check.template ScoreAndGradient<true>();
    check.template ScoreAndGradient<false>();
    check.template Weighted<true>();
    check.template Weighted<false>();
    check.template Spread<true>();
    check.template Spread<false>();
    check.Keys();
  }
};

// Sanitizers make GCC take minutes for each of these heights, so that they see few of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
using FloatHeights = std::integer_sequence<int, 1, 6>;
using DoubleHeights = std::integer_sequence<int, 5>;
#else
using FloatHeights = std::integer_sequence<int, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14>;
using DoubleHeights = std::integer_sequence<int, 1, 5, 6, kMostTileRows>;
static_assert(FloatHeights::size() == kMostTileRows);
#endif
template <typename T, int... kHeights> void CheckHeights(std::integer_sequence<int, kHeights...>) { (TileCheck<kHeights, T>::Run(), ...); }
void CheckTiles() {
  CheckHeights<float>(FloatHeights());
  CheckHeights<double>(DoubleHeights());
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hinge::kernels {

HWY_EXPORT(CheckTiles);

namespace testing {
namespace {

TEST(Tile, EveryHeightOnEveryTarget) {
  for_each_simd_target([] { HWY_DYNAMIC_DISPATCH(CheckTiles)(); });
}

}  // namespace
}  // namespace testing
}  // namespace hinge::kernels
#endif  // HWY_ONCE
