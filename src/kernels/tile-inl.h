// The micro-kernels of attention, compiled once per target, and the packed layouts they work on. No loops over sequences or heads here.
//
// A row tile is up to kTileRows neighbouring query rows; a panel is kPanelVectors SIMD vectors wide (NR elements). Layouts:
//   score panel   [D][NR]      NR neighbouring keys (or values), transposed: element (d, j)   for q k^T and dO v^T
//   width panel   [rows][NR]   NR neighbouring elements of D of many keys                     for p v, ds k, and the sums dk, dv
//   weight tile   [kTileRows][kKeys]   the weights of one row tile and one block of at most kKeys keys
// A few rows alone, as in a step of decoding, read keys and values where they are: packing would cost more than their products.
// All of it is of T, in which is computed; what is stored as another type S is converted by those that pack, copy and write rows, and by
// the two that read keys and values in place. Tiles of 6 rows x 2 vectors keep 12 sums in registers: with 2 vectors of the panel and 1
// broadcast that is 15 of AVX2's 16.
#if defined(HINGE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HINGE_TILE_INL_H_
#undef HINGE_TILE_INL_H_
#else
#define HINGE_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/activations-inl.h"
#include "kernels/half-inl.h"
#include "kernels/set_bits.h"

HWY_BEFORE_NAMESPACE();
namespace hinge::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kPanelVectors = 2;

// The heights of tiles are a property of the target: kTileRows rows, or kSpreadKeys keys in SpreadKeys (0: SpreadRows does its work), each
// with kPanelVectors sums. AVX-512 has registers for 14. Measured on Zen 4, whole calls: 6 and 8 rows are level and 12 are no faster, and
// the lower the tile, the more zeros it can leave out. SpreadKeys wins 3-4% of backward with AVX-512; with AVX2 it is level with
// SpreadRows. Its 8 keys divide the blocks of keys. Not measured on Intel.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 6, kSpreadKeys = 8;
#else
inline constexpr int kTileRows = 6, kSpreadKeys = 0;
#endif
inline constexpr int kMostTileRows = 14;  // that the micro-kernels can have
static_assert(kTileRows <= kMostTileRows && kSpreadKeys <= kMostTileRows);

// Keys of a block: with the tiles of a block of rows they stay in L2. Backward has more arrays in flight.
inline constexpr int64_t kForwardKeys = 256;
inline constexpr int64_t kBackwardKeys = 128;

template <typename T> HWY_INLINE int64_t PanelWidth() { return kPanelVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())); }

// Appends first + the numbers of the mask's set bits; returns the new end. Stores eight numbers at a time, whatever the count.
HWY_INLINE uint32_t* AppendSetBits(uint32_t mask, uint32_t first, uint32_t* HWY_RESTRICT list) {
  for (; mask != 0; mask >>= 8, first += 8) {
#if HWY_TARGET == HWY_SCALAR
    for (int i = 0; i < 8; ++i) list[i] = first + kSetBits[mask & 255][static_cast<size_t>(i)];
#else
    const hn::CappedTag<uint32_t, 8> d;
    const hn::Rebind<uint8_t, decltype(d)> bytes;
    const int N = static_cast<int>(hn::Lanes(d));
    for (int i = 0; i < 8; i += N)
      hn::StoreU(hn::Add(hn::PromoteTo(d, hn::LoadU(bytes, kSetBits[mask & 255].data() + i)), hn::Set(d, first)), d, list + i);
#endif
    list += hwy::PopCount(uint64_t{mask & 255});
  }
  return list;
}

// The lanes of a mask as bits.
template <class D> HWY_INLINE uint32_t MaskBits(D d, hn::Mask<D> mask) {
  alignas(8) uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  return uint32_t{bytes[0]} | (hn::MaxLanes(d) > 8 ? uint32_t{bytes[1]} << 8 : 0);
}

// The lanes of x that are not zero, as bits. NaN is not zero, whatever Ne says of it.
template <class D, class V> HWY_INLINE uint32_t NonZeroBits(D d, V x) { return MaskBits(d, hn::Not(hn::Eq(x, hn::Zero(d)))); }

// Row tiles come in the heights 1 and 4 to kTileRows; lower ones run as 4 with rows of zeros. Cut into parts as equal as can be, only the
// last tile of a sequence can be that low.
constexpr int PaddedRows(int64_t rows) { return rows == 1 ? 1 : static_cast<int>(std::max<int64_t>(rows, 4)); }

// Table of a micro-kernel by tile height: HINGE_BY_ROWS(F, args) is { nullptr, F<1, args>, F<4, args>, F<4, args>, ... }.
template <typename Kernel> using ByRows = std::array<Kernel, kMostTileRows + 1>;
constexpr int HeightFor(int rows) { return PaddedRows(std::min(rows, kTileRows)); }
#define HINGE_BY_ROWS(F, ...)                                                                                                      \
  {                                                                                                                                \
    nullptr, F<1, __VA_ARGS__>, F<HeightFor(2), __VA_ARGS__>, F<HeightFor(3), __VA_ARGS__>, F<HeightFor(4), __VA_ARGS__>,          \
        F<HeightFor(5), __VA_ARGS__>, F<HeightFor(6), __VA_ARGS__>, F<HeightFor(7), __VA_ARGS__>, F<HeightFor(8), __VA_ARGS__>,    \
        F<HeightFor(9), __VA_ARGS__>, F<HeightFor(10), __VA_ARGS__>, F<HeightFor(11), __VA_ARGS__>, F<HeightFor(12), __VA_ARGS__>, \
        F<HeightFor(13), __VA_ARGS__>, F<HeightFor(14), __VA_ARGS__>                                                               \
  }

// HINGE_ROWS(X) expands X(r) for each row of a tile; X tests `if constexpr (MR > r)`. Named variables rather than an array: compilers
// keep them in registers.
#define HINGE_ROWS(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define HINGE_DECLARE(r) [[maybe_unused]] V a##r = zero, b##r = zero;
#define HINGE_STEP(r)                                        \
  if constexpr (MR > r) {                                    \
    const V w = hn::Set(d, left[r * left_row]);              \
    a##r = hn::MulAdd(w, right0, a##r);                      \
    if constexpr (kWide) b##r = hn::MulAdd(w, right1, b##r); \
  }

// Keeps a sum in its register between two steps. Left alone, GCC mixes the steps of an unrolled loop, runs out of registers and spills.
#if HWY_ARCH_X86 && HWY_COMPILER_GCC && !HWY_COMPILER_CLANG && HWY_TARGET != HWY_SCALAR
#define HINGE_PIN(r)                          \
  if constexpr (MR > r && kWide) {            \
    asm("" : "+v"(a##r.raw), "+v"(b##r.raw)); \
  } else if constexpr (MR > r) {              \
    asm("" : "+v"(a##r.raw));                 \
  }
#else
#define HINGE_PIN(r)
#endif

// The products of a tile of left rows with a score panel. Four elements at a time: the end of a short loop is then foreseen.
#define HINGE_DOT                                                           \
  int64_t k = 0;                                                            \
  for (; k + 4 <= depth; k += 4) {                                          \
    HWY_UNROLL(4)                                                           \
    for (int u = 0; u < 4; ++u) {                                           \
      const V right0 = hn::Load(d, panel + u * 2 * N);                      \
      [[maybe_unused]] const V right1 = hn::Load(d, panel + u * 2 * N + N); \
      HINGE_ROWS(HINGE_STEP)                                                \
      HINGE_ROWS(HINGE_PIN)                                                 \
      left += 1;                                                            \
    }                                                                       \
    panel += 4 * 2 * N;                                                     \
  }                                                                         \
  for (; k < depth; ++k) {                                                  \
    const V right0 = hn::Load(d, panel);                                    \
    [[maybe_unused]] const V right1 = hn::Load(d, panel + N);               \
    HINGE_ROWS(HINGE_STEP)                                                  \
    left += 1;                                                              \
    panel += 2 * N;                                                         \
  }

// One tile of scores with its activation:  x = left . panel + shift,  weights = h(x), and slopes = h'(x) if asked.
//   left  [MR] rows of `depth` elements, `left_row` apart;  panel: score panel
//   shift [MR] the bias of each row, added last: a sum that started there would round at its size
//   weights, slopes: into weight tiles, at the panel's first key
// Narrow (not kWide): the first vector of the panel only.
// If mask is not null, *mask = the keys of the panel, as bits, for which any row's weight is non-zero.
template <int MR, bool kWide, class H, int64_t kKeys, bool kSlopes, typename T>
static HWY_NOINLINE void ScoreTile(const T* HWY_RESTRICT left, int64_t left_row, const T* HWY_RESTRICT panel, int64_t depth,
                                   const T* HWY_RESTRICT shift, T* HWY_RESTRICT weights, T* HWY_RESTRICT slopes,
                                   uint32_t* HWY_RESTRICT mask) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  HINGE_ROWS(HINGE_DECLARE)
  HINGE_DOT
#define HINGE_SHIFT(r)                             \
  if constexpr (MR > r) {                          \
    const V by = hn::Set(d, shift[r]);             \
    a##r = hn::Add(a##r, by);                      \
    if constexpr (kWide) b##r = hn::Add(b##r, by); \
  }
  HINGE_ROWS(HINGE_SHIFT)
#undef HINGE_SHIFT
#define HINGE_ACTIVATE(r)                                               \
  if constexpr (MR > r) {                                               \
    if constexpr (kSlopes) {                                            \
      V slope;                                                          \
      a##r = H::value_and_slope(d, a##r, slope);                        \
      hn::Store(slope, d, slopes + r * kKeys);                          \
      if constexpr (kWide) b##r = H::value_and_slope(d, b##r, slope);   \
      if constexpr (kWide) hn::Store(slope, d, slopes + r * kKeys + N); \
    } else {                                                            \
      a##r = H::value(d, a##r);                                         \
      if constexpr (kWide) b##r = H::value(d, b##r);                    \
    }                                                                   \
    hn::Store(a##r, d, weights + r * kKeys);                            \
    if constexpr (kWide) hn::Store(b##r, d, weights + r * kKeys + N);   \
  }
  HINGE_ROWS(HINGE_ACTIVATE)
#undef HINGE_ACTIVATE
  if constexpr (H::kHasZeros) {
    if (mask == nullptr) return;
    // Or keeps every set bit: the result equals zero (or minus zero) only if all do; NaN counts as non-zero.
    V any_a = a0, any_b = b0;
#define HINGE_OR(r)                \
  if constexpr (MR > r && r > 0) { \
    any_a = hn::Or(any_a, a##r);   \
    any_b = hn::Or(any_b, b##r);   \
  }
    HINGE_ROWS(HINGE_OR)
#undef HINGE_OR
    *mask = NonZeroBits(d, any_a) | NonZeroBits(d, any_b) << N;
  }
}

// h of the scores x in [rows] of a weight tile, and h' into slopes if asked, for the first `keys` keys and up to a vector's end.
template <class H, int64_t kKeys, bool kSlopes, typename T>
HWY_NOINLINE void ActivateTile(T* HWY_RESTRICT x, T* HWY_RESTRICT slopes, int rows, int64_t keys) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = r * kKeys; j < r * kKeys + keys; j += N) {
      if constexpr (kSlopes) {
        hn::Vec<decltype(d)> slope;
        hn::Store(H::value_and_slope(d, hn::Load(d, x + j), slope), d, x + j);
        hn::Store(slope, d, slopes + j);
      } else {
        hn::Store(H::value(d, hn::Load(d, x + j)), d, x + j);
      }
    }
}

// The second tile of the backward pass:  dp = left . panel. With raw == nullptr, gradients = (dp + shift) h'(x), where h' is what
// `gradients` holds or follows from the weights (kSlope); otherwise dp goes to raw and `gradients` stays. Narrow as ScoreTile.
template <int MR, bool kWide, Slope kSlope, typename T>
static HWY_NOINLINE void GradientTile(const T* HWY_RESTRICT left, int64_t left_row, const T* HWY_RESTRICT panel, int64_t depth,
                                      const T* HWY_RESTRICT shift, const T* HWY_RESTRICT weights, T* HWY_RESTRICT gradients,
                                      T* HWY_RESTRICT raw) {
  constexpr int64_t kKeys = kBackwardKeys;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  HINGE_ROWS(HINGE_DECLARE)
  HINGE_DOT
  if (raw == nullptr) {
#define HINGE_FINISH(r)                                                                                         \
  if constexpr (MR > r) {                                                                                       \
    const V by = hn::Set(d, shift[r]);                                                                          \
    a##r = hn::Add(a##r, by);                                                                                   \
    if constexpr (kWide) b##r = hn::Add(b##r, by);                                                              \
    if constexpr (kSlope == Slope::kStored) {                                                                   \
      a##r = hn::Mul(a##r, hn::Load(d, gradients + r * kKeys));                                                 \
      if constexpr (kWide) b##r = hn::Mul(b##r, hn::Load(d, gradients + r * kKeys + N));                        \
    } else if constexpr (kSlope == Slope::kPositiveWeight) {                                                    \
      a##r = hn::IfThenElseZero(hn::Gt(hn::Load(d, weights + r * kKeys), zero), a##r);                          \
      if constexpr (kWide) b##r = hn::IfThenElseZero(hn::Gt(hn::Load(d, weights + r * kKeys + N), zero), b##r); \
    }                                                                                                           \
    hn::Store(a##r, d, gradients + r * kKeys);                                                                  \
    if constexpr (kWide) hn::Store(b##r, d, gradients + r * kKeys + N);                                         \
  }
    HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
  } else {
#define HINGE_FINISH(r)                                           \
  if constexpr (MR > r) {                                         \
    hn::Store(a##r, d, raw + r * kKeys);                          \
    if constexpr (kWide) hn::Store(b##r, d, raw + r * kKeys + N); \
  }
    HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
  }
}

// sums[r][0..NR) = sum over keys of weights[r][key] * rows[key][0..NR), for the first `count` keys of a list, or for the keys 0 .. count-1.
// Added to what sums holds if `add`; times factor[r] if factor is not null. Rows are `row` elements apart, those of sums `sum_row`.
template <int MR, int64_t kKeys, bool kListed, typename T>
static HWY_NOINLINE void WeightedRows(const T* HWY_RESTRICT weights, const uint32_t* HWY_RESTRICT list, int64_t count,
                                      const T* HWY_RESTRICT rows, int64_t row, T* HWY_RESTRICT sums, int64_t sum_row, bool add,
                                      const T* HWY_RESTRICT factor) {
  constexpr bool kWide = true;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  constexpr int64_t left_row = kKeys;
  HINGE_ROWS(HINGE_DECLARE)
  if constexpr (kListed) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t key = static_cast<int64_t>(list[k]);
      const T* left = weights + key;
      const V right0 = hn::LoadU(d, rows + key * row);
      const V right1 = hn::LoadU(d, rows + key * row + N);
      HINGE_ROWS(HINGE_STEP)
    }
  } else {
    const T* left = weights;
    for (int64_t k = 0; k < count; ++k) {
      const V right0 = hn::LoadU(d, rows);
      const V right1 = hn::LoadU(d, rows + N);
      HINGE_ROWS(HINGE_STEP)
      rows += row;
      left += 1;
    }
  }
  if (add) {
#define HINGE_FINISH(r)                                         \
  if constexpr (MR > r) {                                       \
    a##r = hn::Add(a##r, hn::LoadU(d, sums + r * sum_row));     \
    b##r = hn::Add(b##r, hn::LoadU(d, sums + r * sum_row + N)); \
  }
    HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
  }
  if (factor) {
#define HINGE_FINISH(r)                \
  if constexpr (MR > r) {              \
    const V f = hn::Set(d, factor[r]); \
    a##r = hn::Mul(a##r, f);           \
    b##r = hn::Mul(b##r, f);           \
  }
    HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
  }
#define HINGE_FINISH(r)                          \
  if constexpr (MR > r) {                        \
    hn::StoreU(a##r, d, sums + r * sum_row);     \
    hn::StoreU(b##r, d, sums + r * sum_row + N); \
  }
  HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
}

// The transposed product, nothing transposed:  sums[key][0..NR) += sum over rows r of weights[r][key] * tile[r][0..NR).
// MR rows and any keys: the tile's MR x NR block stays in registers while the keys stream by, which can be those of a list.
template <int MR, bool kListed, typename T>
static HWY_NOINLINE void SpreadRows(const T* HWY_RESTRICT weights, const uint32_t* HWY_RESTRICT list, int64_t count,
                                    const T* HWY_RESTRICT tile, int64_t tile_row, T* HWY_RESTRICT sums) {
  constexpr int64_t kKeys = kBackwardKeys;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  HINGE_ROWS(HINGE_DECLARE)
#define HINGE_LOAD(r)                            \
  if constexpr (MR > r) {                        \
    a##r = hn::Load(d, tile + r * tile_row);     \
    b##r = hn::Load(d, tile + r * tile_row + N); \
  }
  HINGE_ROWS(HINGE_LOAD)
#undef HINGE_LOAD
  for (int64_t k = 0; k < count; ++k) {
    const int64_t key = kListed ? static_cast<int64_t>(list[k]) : k;
    // The tile's share is summed first: the running sum then rounds once a tile, not once a row.
    const V first = hn::Set(d, weights[key]);
    V sum0 = hn::Mul(first, a0), sum1 = hn::Mul(first, b0);
#define HINGE_ADD(r)                                  \
  if constexpr (MR > r && r > 0) {                    \
    const V w = hn::Set(d, weights[r * kKeys + key]); \
    sum0 = hn::MulAdd(w, a##r, sum0);                 \
    sum1 = hn::MulAdd(w, b##r, sum1);                 \
  }
    HINGE_ROWS(HINGE_ADD)
#undef HINGE_ADD
    T* sum = sums + key * 2 * N;
    hn::Store(hn::Add(sum0, hn::Load(d, sum)), d, sum);
    hn::Store(hn::Add(sum1, hn::Load(d, sum + N)), d, sum + N);
  }
}

// Any rows and KR neighbouring keys: their KR x NR sums stay in registers while the rows stream by, and are loaded and stored once instead
// of once a tile. weights: from the first of the keys on, rows of a weight tile; tile: rows tile_row apart.
template <int KR, typename T>
static HWY_NOINLINE void SpreadKeys(const T* HWY_RESTRICT weights, int64_t rows, const T* HWY_RESTRICT tile, int64_t tile_row,
                                    T* HWY_RESTRICT sums) {
  constexpr int MR = KR;
  constexpr int64_t left_row = 1;
  constexpr bool kWide = true;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  const T* left = weights;
  HINGE_ROWS(HINGE_DECLARE)
  for (int64_t r = 0; r < rows; ++r) {
    const V right0 = hn::Load(d, tile);
    const V right1 = hn::Load(d, tile + N);
    HINGE_ROWS(HINGE_STEP)
    left += kBackwardKeys;
    tile += tile_row;
  }
#define HINGE_FINISH(r)                                         \
  if constexpr (MR > r) {                                       \
    T* sum = sums + r * 2 * N;                                  \
    hn::Store(hn::Add(a##r, hn::Load(d, sum)), d, sum);         \
    hn::Store(hn::Add(b##r, hn::Load(d, sum + N)), d, sum + N); \
  }
  HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
}

// WeightedRows for one row and P panels at a time, whose values lie side by side: enough sums at once to hide the latency of one.
template <int P, bool kListed, typename S, typename T>
HWY_NOINLINE void WeightedPanels(const T* HWY_RESTRICT weights, const uint32_t* HWY_RESTRICT list, int64_t count,
                                 const S* HWY_RESTRICT rows, int64_t row, T* HWY_RESTRICT sums, bool add, const T* HWY_RESTRICT factor) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  HINGE_ROWS(HINGE_DECLARE)
  for (int64_t k = 0; k < count; ++k) {
    const int64_t key = kListed ? static_cast<int64_t>(list[k]) : k;
    const V w = hn::Set(d, weights[key]);
    const S* HWY_RESTRICT value = rows + key * row;
#define HINGE_ADD(p)                                                  \
  if constexpr (P > p) {                                              \
    a##p = hn::MulAdd(w, LoadStored(d, value + 2 * p * N), a##p);     \
    b##p = hn::MulAdd(w, LoadStored(d, value + 2 * p * N + N), b##p); \
  }
    HINGE_ROWS(HINGE_ADD)
#undef HINGE_ADD
  }
  const V f = hn::Set(d, factor ? *factor : T{1});
#define HINGE_FINISH(p)                                         \
  if constexpr (P > p) {                                        \
    if (add) {                                                  \
      a##p = hn::Add(a##p, hn::LoadU(d, sums + 2 * p * N));     \
      b##p = hn::Add(b##p, hn::LoadU(d, sums + 2 * p * N + N)); \
    }                                                           \
    hn::StoreU(hn::Mul(f, a##p), d, sums + 2 * p * N);          \
    hn::StoreU(hn::Mul(f, b##p), d, sums + 2 * p * N + N);      \
  }
  HINGE_ROWS(HINGE_FINISH)
#undef HINGE_FINISH
}

#undef HINGE_DOT
#undef HINGE_PIN
#undef HINGE_STEP
#undef HINGE_DECLARE
#undef HINGE_ROWS

#if HWY_TARGET != HWY_SCALAR
// The sum of a vector's 128-bit blocks.
template <class D> HWY_INLINE auto SumOfBlocks(D, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    return x;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}
#endif

// out[i] = the sum of the lanes of xi.
template <class D, typename T = hn::TFromD<D>, class V = hn::Vec<D>> HWY_INLINE void SumsOfFour(D d, V x0, V x1, V x2, V x3, T* out) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    // In each block: the halves of two vectors, interleaved and added, then those of the two pairs.
    const hn::Repartition<uint64_t, D> d64;
    const auto x01 = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, x0, x1), hn::InterleaveUpper(d, x0, x1)));
    const auto x23 = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, x2, x3), hn::InterleaveUpper(d, x2, x3)));
    const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, x01, x23)), hn::BitCast(d, hn::InterleaveUpper(d64, x01, x23)));
    hn::StoreU(SumOfBlocks(d, sums), hn::CappedTag<T, 4>(), out);
    return;
  }
#endif
  out[0] = hn::GetLane(hn::SumOfLanes(d, x0));
  out[1] = hn::GetLane(hn::SumOfLanes(d, x1));
  out[2] = hn::GetLane(hn::SumOfLanes(d, x2));
  out[3] = hn::GetLane(hn::SumOfLanes(d, x3));
}

// The products of ScoreTile without a panel, for a tile of a few rows and the first `count` of the keys, which are `key_row` apart; depth
// is a multiple of NR. The rows are multiplied by scale, which a panel would have in its keys. Behind the last key, zeros up to a panel's
// end.
template <int64_t kKeys, typename S, typename T>
HWY_NOINLINE void DotRows(const T* HWY_RESTRICT left, int64_t left_row, int64_t rows, const S* HWY_RESTRICT keys, int64_t key_row,
                          int64_t count, int64_t depth, T scale, T* HWY_RESTRICT weights) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d)), NR = kPanelVectors * N;
  const V by = hn::Set(d, scale);
  int64_t j = 0;
  for (; j < count; j += 4) {
    const int64_t last = count - 1;  // stands in for the keys behind it
    const S *k0 = keys + j * key_row, *k1 = keys + std::min(j + 1, last) * key_row, *k2 = keys + std::min(j + 2, last) * key_row,
            *k3 = keys + std::min(j + 3, last) * key_row;
    for (int64_t r = 0; r < rows; ++r) {
      const T* HWY_RESTRICT q = left + r * left_row;
      V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
      for (int64_t k = 0; k < depth; k += NR) {
        const V qa = hn::Mul(by, hn::LoadU(d, q + k)), qb = hn::Mul(by, hn::LoadU(d, q + k + N));
        a0 = hn::MulAdd(qa, LoadStored(d, k0 + k), a0);
        a1 = hn::MulAdd(qa, LoadStored(d, k1 + k), a1);
        a2 = hn::MulAdd(qa, LoadStored(d, k2 + k), a2);
        a3 = hn::MulAdd(qa, LoadStored(d, k3 + k), a3);
        b0 = hn::MulAdd(qb, LoadStored(d, k0 + k + N), b0);
        b1 = hn::MulAdd(qb, LoadStored(d, k1 + k + N), b1);
        b2 = hn::MulAdd(qb, LoadStored(d, k2 + k + N), b2);
        b3 = hn::MulAdd(qb, LoadStored(d, k3 + k + N), b3);
      }
      SumsOfFour(d, hn::Add(a0, b0), hn::Add(a1, b1), hn::Add(a2, b2), hn::Add(a3, b3), weights + r * kKeys + j);
    }
  }
  const int64_t end = (count + NR - 1) / NR * NR;
  for (int64_t r = 0; r < rows && j < end; ++r) std::fill_n(weights + r * kKeys + j, end - j, T{0});
}

// The rest of ScoreTile for the products of DotRows: h(x + shift) up to a panel's end. masks are those of all panels.
template <class H, int64_t kKeys, typename T>
HWY_NOINLINE void ActivateRows(const T* HWY_RESTRICT shift, int64_t rows, int64_t count, T* HWY_RESTRICT weights,
                               uint32_t* HWY_RESTRICT masks) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d)), NR = kPanelVectors * N;
  for (int64_t j = 0; j < count; j += NR) {
    V any_a = hn::Zero(d), any_b = any_a;
    for (int64_t r = 0; r < rows; ++r) {
      T* HWY_RESTRICT w = weights + r * kKeys + j;
      const V to = hn::Set(d, shift[r]);
      const V a = H::value(d, hn::Add(hn::Load(d, w), to)), b = H::value(d, hn::Add(hn::Load(d, w + N), to));
      hn::Store(a, d, w);
      hn::Store(b, d, w + N);
      any_a = hn::Or(any_a, a);
      any_b = hn::Or(any_b, b);
    }
    if (H::kHasZeros && masks) masks[j / NR] = NonZeroBits(d, any_a) | NonZeroBits(d, any_b) << N;
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four elements, from k on, of the rows 0, 4, 8 ... of `rows`, as the 128-bit blocks of one vector.
template <class D, typename T = hn::TFromD<D>> HWY_INLINE hn::Vec<D> LoadBlocks(D d, const T* const* HWY_RESTRICT rows, int64_t k) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    return hn::LoadU(d, rows[0] + k);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kHalfBlocks = static_cast<int64_t>(hn::MaxLanes(D()) * sizeof(T) / 32);
    return hn::Combine(d, LoadBlocks(half, rows + kHalfBlocks * 4, k), LoadBlocks(half, rows, k));
  }
}
#endif  // HWY_TARGET != HWY_SCALAR

// One row of D elements times `factor` into an aligned buffer of `padded` elements (a multiple of NR), zeros behind.
template <typename S, typename T>
HWY_INLINE void CopyRow(const S* HWY_RESTRICT in, int64_t depth, T factor, T* HWY_RESTRICT out, int64_t padded) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  int64_t k = 0;
  for (; k + N <= depth; k += N) hn::Store(hn::Mul(f, LoadStored(d, in + k)), d, out + k);
  for (; k < depth; ++k) out[k] = static_cast<T>(in[k]) * factor;
  for (; k < padded; ++k) out[k] = 0;
}

// Score panel: out[d][j] = factor * in[j * row + d] for j < keys. The columns behind repeat the last key; nobody uses their scores.
template <typename T>
HWY_NOINLINE void PackScorePanel(const T* HWY_RESTRICT in, int64_t row, int64_t keys, int64_t depth, T factor, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d)), NR = kPanelVectors * N;
  const T* rows[kPanelVectors * HWY_MAX_BYTES / sizeof(T)];
  for (int64_t j = 0; j < NR; ++j) rows[j] = in + std::min(j, keys - 1) * row;
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    // Four elements of N keys at a time, transposed as 4 x 4 within each 128-bit block.
    const hn::Repartition<uint64_t, decltype(d)> d64;
    const auto f = hn::Set(d, factor);
    for (; k + 4 <= depth; k += 4) {
      for (int64_t j = 0; j < NR; j += N) {
        const auto r0 = LoadBlocks(d, rows + j, k), r1 = LoadBlocks(d, rows + j + 1, k);
        const auto r2 = LoadBlocks(d, rows + j + 2, k), r3 = LoadBlocks(d, rows + j + 3, k);
        const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)), t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
        const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1)), t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
        hn::Store(hn::Mul(f, hn::BitCast(d, hn::InterleaveLower(d64, t0, t1))), d, out + k * NR + j);
        hn::Store(hn::Mul(f, hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1))), d, out + (k + 1) * NR + j);
        hn::Store(hn::Mul(f, hn::BitCast(d, hn::InterleaveLower(d64, t2, t3))), d, out + (k + 2) * NR + j);
        hn::Store(hn::Mul(f, hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3))), d, out + (k + 3) * NR + j);
      }
    }
  }
#endif
  for (; k < depth; ++k)
    for (int64_t j = 0; j < NR; ++j) out[k * NR + j] = rows[j][k] * factor;
}

// The same of keys that are only stored, some elements of all keys of the panel at a time.
template <typename S, typename T>
requires(!std::is_same_v<S, T>) HWY_NOINLINE
    void PackScorePanel(const S* HWY_RESTRICT in, int64_t row, int64_t keys, int64_t depth, T factor, T* HWY_RESTRICT out) {
  constexpr int64_t kElements = 64;
  HWY_ALIGN T rows[kPanelVectors * HWY_MAX_BYTES / sizeof(T) * kElements];
  for (int64_t k = 0; k < depth; k += kElements) {
    const int64_t count = std::min(kElements, depth - k);
    for (int64_t j = 0; j < keys; ++j) CopyRow(in + j * row + k, count, T{1}, rows + j * kElements, count);
    PackScorePanel(rows, kElements, keys, count, factor, out + k * PanelWidth<T>());
  }
}

// Width panels: row j of D elements goes to out[panel][j][NR]; panels are panel_stride apart. Zeros pad the last panel.
template <typename S, typename T>
HWY_INLINE void PackWidthRow(const S* HWY_RESTRICT in, int64_t depth, T* HWY_RESTRICT out, int64_t panel_stride) {
  const int64_t NR = PanelWidth<T>();
  for (int64_t k = 0; k < depth; k += NR, out += panel_stride) CopyRow(in + k, std::min(NR, depth - k), T{1}, out, NR);
}

// out[0..depth) = factor * in, or += when kAdd; `in` may be `out`.
template <bool kAdd, typename T, typename S> HWY_INLINE void WriteRow(const T* in, int64_t depth, T factor, S* out) {
  static_assert(!kAdd || std::is_same_v<S, T>, "sums are rounded once");
  const hn::ScalableTag<T> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  int64_t k = 0;
  for (; k + N <= depth; k += N) {
    auto x = hn::Mul(f, hn::LoadU(d, in + k));
    if constexpr (kAdd) x = hn::Add(x, hn::LoadU(d, out + k));
    StoreStored(x, d, out + k);
  }
  for (; k < depth; ++k) {
    T x = in[k] * factor;
    if constexpr (kAdd) x += out[k];
    out[k] = static_cast<S>(x);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hinge::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
